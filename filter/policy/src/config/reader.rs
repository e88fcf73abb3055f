//! Reads a JSON object field by field and remembers every fault on the way.
//!
//! A derived deserializer stops at the first fault. Who writes a policy wants all of them, each
//! with its path, in one go.

use std::time::Duration;

use serde_json::{Map, Value};

/// One fault of a policy: where it is, and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Path such as `tiers[1].queue.max_wait`; empty for the policy as a whole.
    pub path: String,
    /// What is wrong, in lower case, without the value where it could be a secret.
    pub problem: String,
}

/// All faults found so far.
#[derive(Debug, Default)]
pub(super) struct Faults(pub(super) Vec<Fault>);

impl Faults {
    pub(super) fn add(&mut self, path: impl Into<String>, problem: impl Into<String>) {
        self.0.push(Fault { path: path.into(), problem: problem.into() });
    }
}

/// One object being read. Fields are taken out; what is left in the end is unknown.
#[derive(Debug)]
pub(super) struct Fields {
    path: String,
    map: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Fields {
    /// Takes a value that must be an object. Anything else is a fault and reads as empty.
    pub(super) fn new(value: Value, path: &str, faults: &mut Faults) -> Self {
        let map = match value {
            Value::Object(map) => map,
            other => {
                faults.add(path, format!("must be an object, not {}", kind(&other)));
                Map::new()
            }
        };
        Self { path: path.to_owned(), map, known: Vec::new() }
    }

    pub(super) fn path(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    /// The field's value; absent and null are the same.
    pub(super) fn take(&mut self, field: &'static str) -> Option<Value> {
        self.known.push(field);
        self.map.remove(field).filter(|value| !value.is_null())
    }

    /// Demands a field: the object itself where it is there, a fault where it is not.
    pub(super) fn need(&mut self, field: &'static str, faults: &mut Faults) -> Option<&mut Self> {
        if self.map.get(field).is_none_or(Value::is_null) {
            self.take(field);
            faults.add(self.path(field), "is required");
            return None;
        }
        Some(self)
    }

    pub(super) fn text(&mut self, field: &'static str, faults: &mut Faults) -> Option<String> {
        match self.take(field)? {
            Value::String(text) => Some(text),
            other => {
                faults.add(self.path(field), format!("must be a string, not {}", kind(&other)));
                None
            }
        }
    }

    pub(super) fn flag(&mut self, field: &'static str, faults: &mut Faults) -> Option<bool> {
        match self.take(field)? {
            Value::Bool(flag) => Some(flag),
            other => {
                faults
                    .add(self.path(field), format!("must be true or false, not {}", kind(&other)));
                None
            }
        }
    }

    /// A whole number from `low` to `high`.
    pub(super) fn number(
        &mut self,
        field: &'static str,
        low: u32,
        high: u32,
        faults: &mut Faults,
    ) -> Option<u32> {
        let value = self.take(field)?;
        let found = value.as_u64().and_then(|number| u32::try_from(number).ok());
        let found = found.filter(|number| (low..=high).contains(number));
        if found.is_none() {
            faults.add(self.path(field), format!("must be a whole number from {low} to {high}"));
        }
        found
    }

    /// A number between 0 and 1.
    pub(super) fn fraction(&mut self, field: &'static str, faults: &mut Faults) -> Option<f64> {
        let value = self.take(field)?;
        let found = decimal(&value).filter(|number| *number > 0.0 && *number < 1.0);
        if found.is_none() {
            faults.add(self.path(field), "must be a number between 0 and 1, both excluded");
        }
        found
    }

    /// A rate above 0 in thousandths, rounded: from 0.001 to a million.
    pub(super) fn rate(&mut self, field: &'static str, faults: &mut Faults) -> Option<u64> {
        let value = self.take(field)?;
        let found = decimal(&value).filter(|number| (0.001..=1_000_000.0).contains(number));
        if found.is_none() {
            faults.add(self.path(field), "must be a number from 0.001 to 1000000");
        }
        // Within the bounds a thousandfold fits in 64 bits, and is not negative.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        found.map(|number| (number * 1_000.0).round() as u64)
    }

    /// A duration with its unit, such as `500ms`, `2s` or `1m`; from 1 ms to 1 h.
    pub(super) fn duration(
        &mut self,
        field: &'static str,
        faults: &mut Faults,
    ) -> Option<Duration> {
        let text = self.text(field, faults)?;
        let found = duration(&text);
        if found.is_none() {
            faults.add(
                self.path(field),
                "must be a duration with its unit from 1ms to 1h, such as 500ms, 2s or 1m",
            );
        }
        found
    }

    pub(super) fn list(&mut self, field: &'static str, faults: &mut Faults) -> Vec<Value> {
        match self.take(field) {
            None => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => {
                faults.add(self.path(field), format!("must be a list, not {}", kind(&other)));
                Vec::new()
            }
        }
    }

    pub(super) fn object(&mut self, field: &'static str, faults: &mut Faults) -> Option<Self> {
        let value = self.take(field)?;
        Some(Self::new(value, &self.path(field), faults))
    }

    /// The rest of an object whose field names are the user's own.
    pub(super) fn into_entries(self) -> Map<String, Value> {
        self.map
    }

    /// Ends the reading: whatever is left is unknown.
    pub(super) fn finish(self, faults: &mut Faults) {
        for field in self.map.keys() {
            let path = self.path(field);
            faults.add(path, format!("is unknown; known here are {}", self.known.join(", ")));
        }
    }
}

/// A number. Envoy's YAML reader hands fractions inside a `Struct` on as text.
fn decimal(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    let millis = match unit {
        "ms" => number,
        "s" => number.checked_mul(1_000)?,
        "m" => number.checked_mul(60_000)?,
        "h" => number.checked_mul(3_600_000)?,
        _ => return None,
    };
    (1..=3_600_000).contains(&millis).then(|| Duration::from_millis(millis))
}
