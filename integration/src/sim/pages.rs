//! What the server answers beside inference: models, metrics, tokenize, scripted faults, and the
//! load report that rides on answers.

use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Request, Response};
use serde_json::{Value, json};

use super::ask::count_for_tokenize;
use super::config::Fault;
use super::connection::Content;
use super::reply::ApiError;
use super::server::{Server, check_content_type, read_body, set_type, whole};

impl Server {
    pub(crate) fn load_report(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let format = headers.get("endpoint-load-metrics-format")?.to_str().ok()?;
        let gauges = self.engine.gauges();
        let (waiting, kv) = (gauges.waiting as f64, gauges.kv_usage);
        let report = match format.to_ascii_uppercase().as_str() {
            "TEXT" => format!(
                "TEXT named_metrics.num_requests_waiting={waiting:?}, \
                 named_metrics.kv_cache_usage_perc={kv:?}"
            ),
            "JSON" => format!(
                "JSON {{\"named_metrics\": {{\"num_requests_waiting\": {waiting:?}, \
                 \"kv_cache_usage_perc\": {kv:?}}}}}"
            ),
            _ => return None,
        };
        HeaderValue::from_str(&report).ok()
    }

    pub(crate) async fn tokenize(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Content>, ApiError> {
        check_content_type(request.headers())?;
        let body = read_body(request.into_body()).await?;
        let count = count_for_tokenize(&body, self.config.counting)?;
        let tokens: Vec<usize> = (0..count).map(|at| at % 256).collect();
        let max = self.config.max_model_len;
        let answer =
            json!({"count": count, "max_model_len": max, "tokens": tokens, "token_strs": null});
        Ok(whole(200, &answer))
    }

    pub(crate) async fn script(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Content>, ApiError> {
        let body = read_body(request.into_body()).await?;
        let fault = Fault::parse(&String::from_utf8_lossy(&body))
            .map_err(|err| ApiError::detail(400, &err))?;
        self.apply(&fault);
        Ok(whole(200, &json!({"fault": fault})))
    }

    pub(crate) fn models(&self) -> Value {
        let root = self.config.models.first();
        let data: Vec<Value> = self
            .config
            .models
            .iter()
            .map(|name| {
                json!({"id": name, "object": "model", "created": self.started as u64,
                    "owned_by": "vllm", "root": root, "parent": null,
                    "max_model_len": self.config.max_model_len})
            })
            .collect();
        json!({"object": "list", "data": data})
    }

    pub(crate) fn metrics(&self) -> Response<Content> {
        let page = self.engine.metrics_page(self.started);
        let mut response = Response::new(Content::Whole(Some(page.into())));
        set_type(&mut response, "text/plain; version=1.0.0; charset=utf-8");
        response
    }
}
