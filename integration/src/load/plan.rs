//! Which request comes when: everything is drawn from the seed, nothing from what happens meanwhile.

use std::time::Duration;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::mix::MixEntry;
use super::trace::TracePoint;
use super::words::{TextUnit, text};

/// When requests are sent in an open loop.
#[derive(Clone, Debug)]
pub enum Arrivals {
    /// Independent arrivals with a mean rate, as from many users.
    Poisson {
        /// Requests per second, above 0.
        rate: f64,
        /// How long requests are sent.
        duration: Duration,
    },
    /// Arrivals at equal distances.
    Constant {
        /// Requests per second, above 0.
        rate: f64,
        /// How long requests are sent.
        duration: Duration,
    },
    /// Arrivals and lengths of a trace; the mix gives everything else.
    Trace(Vec<TracePoint>),
}

impl Arrivals {
    /// How long requests are sent.
    pub fn duration(&self) -> Duration {
        match self {
            Self::Poisson { duration, .. } | Self::Constant { duration, .. } => *duration,
            Self::Trace(points) => points.last().map_or(Duration::ZERO, |point| point.at),
        }
    }

    /// Times of all arrivals, with lengths where a trace has them.
    pub(crate) fn times(
        &self,
        seed: u64,
    ) -> Box<dyn Iterator<Item = (Duration, Option<TracePoint>)> + Send + '_> {
        match self {
            Self::Trace(points) => Box::new(points.iter().map(|point| (point.at, Some(*point)))),
            Self::Constant { rate, duration } => {
                let gap = Duration::from_secs_f64(1.0 / rate);
                let times = (0u32..).map(move |n| gap * n);
                Box::new(times.take_while(|at| at < duration).map(|at| (at, None)))
            }
            Self::Poisson { rate, duration } => {
                let mut rng = SmallRng::seed_from_u64(seed);
                let mut at = 0.0;
                let times = std::iter::repeat_with(move || {
                    // 1 - u is never 0, so the logarithm is finite.
                    at -= (1.0 - rng.random::<f64>()).ln() / rate;
                    Duration::from_secs_f64(at)
                });
                Box::new(times.take_while(|at| at < duration).map(|at| (at, None)))
            }
        }
    }
}

/// A request ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// Place in the mix.
    pub(crate) entry: usize,
    pub(crate) number: u64,
    pub(crate) body: Bytes,
}

/// Makes requests from the mix.
#[derive(Clone, Debug)]
pub(crate) struct Maker {
    pub(crate) mix: Vec<MixEntry>,
    pub(crate) seed: u64,
    pub(crate) unit: TextUnit,
}

impl Maker {
    /// Request `number`, of a given entry or of one drawn by the shares.
    pub(crate) fn prepare(
        &self,
        number: u64,
        entry: Option<usize>,
        lengths: Option<TracePoint>,
    ) -> Prepared {
        // Each request has its own generator, so that it is the same in whatever order they are made.
        let mut rng =
            SmallRng::seed_from_u64(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let entry = entry.unwrap_or_else(|| self.draw(&mut rng));
        let kind = &self.mix[entry];
        let (prompt, output) = (kind.prompt.draw(&mut rng), kind.output.draw(&mut rng));
        let (prompt, output) =
            lengths.map_or((prompt, output), |point| (point.prompt, point.output));
        let content = text(kind.language, self.unit, prompt, &mut rng);
        let mut body = json!({
            "messages": [{"role": "user", "content": content}],
            "max_tokens": output,
            "ignore_eos": true,
        });
        if let Some(model) = &kind.model {
            body["model"] = Value::from(model.as_str());
        }
        if kind.stream {
            body["stream"] = true.into();
            body["stream_options"] = json!({"include_usage": true});
        }
        Prepared { entry, number, body: body.to_string().into() }
    }

    fn draw(&self, rng: &mut impl Rng) -> usize {
        let sum: f64 = self.mix.iter().map(|entry| entry.share).sum();
        let mut left = rng.random::<f64>() * sum;
        for (at, entry) in self.mix.iter().enumerate() {
            left -= entry.share;
            if left < 0.0 {
                return at;
            }
        }
        self.mix.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_arrivals_have_their_rate_and_are_the_same_for_a_seed() {
        let arrivals = Arrivals::Poisson { rate: 100.0, duration: Duration::from_secs(100) };
        let times: Vec<_> = arrivals.times(3).map(|(at, _)| at).collect();
        assert!((9_600..10_400).contains(&times.len()), "{}", times.len());
        assert!(times.is_sorted());
        assert_eq!(times, arrivals.times(3).map(|(at, _)| at).collect::<Vec<_>>());
    }

    #[test]
    fn shares_are_kept() {
        let entry = |name: &str, share| MixEntry { share, ..MixEntry::named(name) };
        let mix = vec![entry("a", 7.0), entry("b", 3.0)];
        let maker = Maker { mix, seed: 1, unit: TextUnit::Byte };
        let first = (0..4000).filter(|n| maker.prepare(*n, None, None).entry == 0).count();
        assert!((2700..2900).contains(&first), "{first}");
    }
}
