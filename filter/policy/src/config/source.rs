//! The forms in which a policy arrives.
//!
//! Envoy gives a plugin the text of a `StringValue` as it is, and a `Struct` as its protobuf
//! bytes. Users write YAML, which becomes a `Struct`; control planes write either.

use prost::Message;
use prost_types::value::Kind;
use serde_json::{Map, Number, Value};

use super::reader::Fault;

pub(super) fn from_json(text: &[u8]) -> Result<Value, Vec<Fault>> {
    serde_json::from_slice(text).map(whole_numbers).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let problem = format!("is not JSON: fault at line {line}, column {column}");
        vec![Fault { path: String::new(), problem }]
    })
}

pub(super) fn from_configuration(bytes: &[u8]) -> Result<Value, Vec<Fault>> {
    from_json(bytes).or_else(|faults| {
        // A `Struct` with fields begins with the tag of its map, which no JSON text can go on from.
        let looks_encoded = bytes.first() == Some(&b'\n');
        match prost_types::Struct::decode(bytes) {
            Ok(fields) if looks_encoded => Ok(object(fields)),
            _ => Err(faults),
        }
    })
}

fn object(fields: prost_types::Struct) -> Value {
    let fields = fields.fields.into_iter().map(|(name, value)| (name, plain(value)));
    Value::Object(fields.collect::<Map<_, _>>())
}

fn plain(value: prost_types::Value) -> Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(flag)) => Value::Bool(flag),
        Some(Kind::NumberValue(number)) => self::number(number),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(plain).collect(),
        Some(Kind::StructValue(fields)) => object(fields),
    }
}

/// A number of a `Struct`, which knows only floating point: `64.0` is 64.
fn number(number: f64) -> Value {
    // The text of a whole number of this size is a plain decimal number.
    let whole = (number.fract() == 0.0 && number.abs() < 9.0e15)
        .then(|| format!("{number:.0}").parse::<i64>().ok())
        .flatten();
    whole.map_or_else(
        || Number::from_f64(number).map_or(Value::Null, Value::Number),
        |whole| Value::Number(whole.into()),
    )
}

fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(old) if old.is_f64() => old.as_f64().map_or(Value::Number(old), number),
        Value::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, whole_numbers(value)));
            Value::Object(fields.collect())
        }
        other => other,
    }
}
