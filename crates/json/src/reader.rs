//! The reader that builds a [`Value`]: serde_json alone would accept duplicate keys and round large integers.
//!
//! Notes what it saw beside the error of serde_json, which carries only a text.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

/// No integer outside 64 bits is read as a float of a smaller magnitude.
const SUSPECTED_FROM: f64 = 9.2e18;

/// A rule that the text breaks.
pub(crate) enum Breach {
    DuplicateKey(String),
    TooDeep,
}

/// What one reading saw.
#[derive(Default)]
pub(crate) struct Observed {
    breach: RefCell<Option<Breach>>,
    integer_suspected: Cell<bool>,
}

impl Observed {
    /// True if a number may be a rounded integer: only its literal tells.
    pub(crate) fn is_integer_suspected(&self) -> bool {
        self.integer_suspected.get()
    }

    pub(crate) fn into_breach(self) -> Option<Breach> {
        self.breach.into_inner()
    }

    /// Notes the breach, and ends the reading. The text of the error is not shown.
    fn broken<E: serde::de::Error>(&self, breach: Breach) -> E {
        self.breach.replace(Some(breach));
        E::custom("broken rule")
    }
}

/// Reads one value. Copied for every value inside it.
#[derive(Clone, Copy)]
pub(crate) struct StrictReader<'o> {
    pub(crate) depth_left: usize,
    pub(crate) observed: &'o Observed,
}

impl StrictReader<'_> {
    fn descend<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { depth_left, ..self }),
            None => Err(self.observed.broken(Breach::TooDeep)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for StrictReader<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictReader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        if value.abs() >= SUSPECTED_FROM {
            self.observed.integer_suspected.set(true);
        }
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.descend()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let inner = self.descend()?;
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            match object.entry(name) {
                Entry::Vacant(entry) => {
                    entry.insert(fields.next_value_seed(inner)?);
                }
                Entry::Occupied(entry) => {
                    return Err(self.observed.broken(Breach::DuplicateKey(entry.key().clone())));
                }
            }
        }
        Ok(Value::Object(object))
    }
}
