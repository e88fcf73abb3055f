//! The shipped bootstrap as a document in which a few named places are changed.
//!
//! Tests run the file a user copies. Each change has a method and a reason; whatever has no method
//! stays as shipped. A place that is not found is an error, so that a change of the file cannot
//! turn a test into one of something else.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
const FILTER_NAME: &str = "slogate";

/// An Envoy bootstrap made from `envoy/envoy.yaml`.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    document: Value,
}

impl Bootstrap {
    /// Reads the bootstrap this workspace ships.
    ///
    /// # Errors
    /// When the file is missing or is not YAML.
    pub fn shipped() -> Result<Self> {
        Self::read(&super::workspace_root().join("envoy/envoy.yaml"))
    }

    /// Reads a bootstrap from a YAML file.
    ///
    /// # Errors
    /// When the file is missing or is not YAML.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// Reads a bootstrap from YAML text.
    ///
    /// # Errors
    /// When the text is not YAML.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(Self { document: serde_saphyr::from_str(text)? })
    }

    /// The whole document, as JSON, which Envoy reads as well as YAML.
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// The whole document for a change that has no method of its own.
    pub fn document_mut(&mut self) -> &mut Value {
        &mut self.document
    }

    /// The part at a JSON pointer such as `/static_resources/clusters/0`.
    ///
    /// # Errors
    /// When there is no such part.
    pub fn part(&mut self, pointer: &str) -> Result<&mut Value> {
        self.document
            .pointer_mut(pointer)
            .with_context(|| format!("the bootstrap has no {pointer}"))
    }

    /// The HTTP connection manager of the only listener.
    ///
    /// # Errors
    /// When the bootstrap has none.
    pub fn manager(&mut self) -> Result<&mut Value> {
        self.part(MANAGER)
    }

    /// Where clients connect; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// When the bootstrap has no listener.
    pub fn listen(&mut self, addr: SocketAddr) -> Result<()> {
        *self.part("/static_resources/listeners/0/address/socket_address")? = socket_address(addr);
        Ok(())
    }

    /// Where the admin endpoint is; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// When the bootstrap has no admin endpoint.
    pub fn admin(&mut self, addr: SocketAddr) -> Result<()> {
        *self.part("/admin/address/socket_address")? = socket_address(addr);
        Ok(())
    }

    /// Replaces the endpoints of cluster `name`; a cluster not shipped is added as a copy of the
    /// first one.
    ///
    /// # Errors
    /// When the bootstrap has no clusters.
    pub fn cluster(&mut self, name: &str, endpoints: &[SocketAddr]) -> Result<()> {
        let endpoints: Vec<Value> = endpoints
            .iter()
            .map(|addr| json!({"endpoint": {"address": {"socket_address": socket_address(*addr)}}}))
            .collect();
        let clusters = self
            .part("/static_resources/clusters")?
            .as_array_mut()
            .context("the bootstrap's clusters are no list")?;
        let known = clusters.iter().position(|cluster| cluster["name"] == name);
        let position = if let Some(position) = known {
            position
        } else {
            let copy = clusters.first().cloned().context("the bootstrap has no cluster")?;
            clusters.push(copy);
            clusters.len() - 1
        };
        clusters[position]["name"] = json!(name);
        clusters[position]["load_assignment"] =
            json!({"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]});
        Ok(())
    }

    /// Where the access log goes.
    ///
    /// # Errors
    /// When the bootstrap has no access log.
    pub fn access_log(&mut self, path: &Path) -> Result<()> {
        *self.part(&format!("{MANAGER}/access_log/0/typed_config/path"))? = json!(path);
        Ok(())
    }

    /// Which module is loaded.
    ///
    /// # Errors
    /// When the bootstrap has no slogate filter.
    pub fn wasm(&mut self, path: &Path) -> Result<()> {
        let code = self.plugin()?.pointer_mut("/vm_config/code/local/filename");
        *code.context("the filter has no local file")? = json!(path);
        Ok(())
    }

    /// Replaces the policy.
    ///
    /// # Errors
    /// When the bootstrap has no slogate filter.
    pub fn policy(&mut self, policy: &Value) -> Result<()> {
        self.plugin()?["configuration"]["value"] = policy.clone();
        Ok(())
    }

    /// The policy as shipped or replaced.
    ///
    /// # Errors
    /// When the bootstrap has no slogate filter.
    pub fn policy_value(&mut self) -> Result<Value> {
        Ok(self.plugin()?["configuration"]["value"].clone())
    }

    /// Whether the filter may hold headers while it reads the body. Off is a mistake users make.
    ///
    /// # Errors
    /// When the bootstrap has no slogate filter.
    pub fn allow_on_headers_stop_iteration(&mut self, allow: bool) -> Result<()> {
        self.plugin()?["allow_on_headers_stop_iteration"] = json!(allow);
        Ok(())
    }

    /// Takes the filter out; inference paths go to `cluster`, all else stays. This is the arm
    /// "without" of every comparison.
    ///
    /// # Errors
    /// When there is no filter to take out, or no routes of inference.
    pub fn remove_filter(&mut self, cluster: &str) -> Result<()> {
        let position = self.filter_position()?;
        self.filters()?.remove(position);
        let routes = self.routes()?;
        routes.retain(|route| route["name"] != "held");
        let admitted = routes.iter_mut().find(|route| route["name"] == "admitted");
        let admitted = admitted.context("the bootstrap has no route `admitted`")?;
        if let Some(headers) = admitted["match"]["headers"].as_array_mut() {
            headers.retain(|header| header["name"] != "x-slogate-cluster");
        }
        let action = admitted["route"].as_object_mut().context("`admitted` has no route")?;
        action.remove("cluster_header");
        action.insert("cluster".to_owned(), json!(cluster));
        Ok(())
    }

    /// Moves the filter's configuration out of the bootstrap into `file`, which Envoy reads again
    /// whenever it is replaced; gives what the file must hold. The file must be in `directory`.
    ///
    /// # Errors
    /// When the bootstrap has no slogate filter.
    pub fn discover_filter(&mut self, directory: &Path, file: &Path) -> Result<Value> {
        let position = self.filter_position()?;
        let filter = &mut self.filters()?[position];
        let typed = filter["typed_config"].take();
        *filter = json!({
            "name": FILTER_NAME,
            "config_discovery": {
                "config_source": {
                    "resource_api_version": "V3",
                    "path_config_source": {
                        "path": file,
                        "watched_directory": {"path": directory},
                    },
                },
                "type_urls": [typed["@type"]],
            },
        });
        Ok(json!({"resources": [{
            "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            "name": FILTER_NAME,
            "typed_config": typed,
        }]}))
    }

    fn routes(&mut self) -> Result<&mut Vec<Value>> {
        self.part(&format!("{MANAGER}/route_config/virtual_hosts/0/routes"))?
            .as_array_mut()
            .context("the bootstrap's routes are no list")
    }

    fn filters(&mut self) -> Result<&mut Vec<Value>> {
        self.part(&format!("{MANAGER}/http_filters"))?
            .as_array_mut()
            .context("the bootstrap's filters are no list")
    }

    fn filter_position(&mut self) -> Result<usize> {
        self.filters()?
            .iter()
            .position(|filter| filter["name"] == FILTER_NAME)
            .context("the bootstrap has no filter named slogate")
    }

    fn plugin(&mut self) -> Result<&mut Value> {
        let position = self.filter_position()?;
        self.filters()?[position]
            .pointer_mut("/typed_config/config")
            .context("the slogate filter has no plugin configuration")
    }
}

fn socket_address(addr: SocketAddr) -> Value {
    json!({"address": addr.ip().to_string(), "port_value": addr.port()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_bootstrap_has_every_place_that_tests_change() {
        let mut bootstrap = Bootstrap::shipped().unwrap();
        let addr: SocketAddr = "127.0.0.1:0".parse().unwrap();
        bootstrap.listen(addr).unwrap();
        bootstrap.admin(addr).unwrap();
        bootstrap.access_log(Path::new("log")).unwrap();
        bootstrap.wasm(Path::new("module")).unwrap();
        assert_eq!(bootstrap.policy_value().unwrap()["models"][0]["name"], "deepseek-v4");
        bootstrap.remove_filter("vllm_deepseek_v4").unwrap();
        assert!(bootstrap.policy_value().is_err());
    }

    #[test]
    fn an_anchor_and_its_aliases_are_the_same_value() {
        let bootstrap = Bootstrap::shipped().unwrap();
        let clusters = &bootstrap.document()["static_resources"]["clusters"];
        assert!(clusters[0]["circuit_breakers"].is_object());
        assert_eq!(clusters[0]["circuit_breakers"], clusters[1]["circuit_breakers"]);
    }

    #[test]
    fn a_cluster_that_is_not_shipped_is_added_with_the_settings_of_the_first() {
        let mut bootstrap = Bootstrap::shipped().unwrap();
        bootstrap.cluster("extra", &["127.0.0.1:9".parse().unwrap()]).unwrap();
        let clusters = bootstrap.document()["static_resources"]["clusters"].as_array().unwrap();
        let extra = clusters.last().unwrap();
        assert_eq!(extra["name"], "extra");
        assert_eq!(extra["circuit_breakers"], clusters[0]["circuit_breakers"]);
    }

    #[test]
    fn settings_that_the_module_depends_on_are_shipped() {
        let mut bootstrap = Bootstrap::shipped().unwrap();
        let plugin = bootstrap.plugin().unwrap();
        assert_eq!(plugin["vm_config"]["vm_id"], "slogate");
        assert_eq!(plugin["failure_policy"], "FAIL_RELOAD");
        assert_eq!(plugin["allow_on_headers_stop_iteration"], true);
    }
}
