//! A JSON object whose fields stay as they were written: order, numbers, escapes. What is changed is changed, and
//! nothing else.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The fields, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reading;
        impl<'de> Visitor<'de> for Reading {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        from.deserialize_map(Reading)
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Fields {
    /// Reads an object; `None` where it is anything else.
    pub(super) fn read(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// A field. Of one that is given twice the last counts, as for most readers.
    pub(super) fn get(&self, name: &str) -> Option<&RawValue> {
        let mut fields = self.0.iter().rev();
        fields.find(|(n, _)| n == name).map(|(_, v)| &**v)
    }

    /// A field that is a text.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// A field that is an object.
    pub(super) fn object(&self, name: &str) -> Option<Self> {
        Self::read(self.get(name)?.get().as_bytes())
    }

    /// A field that is a list.
    pub(super) fn list(&self, name: &str) -> Option<Vec<Box<RawValue>>> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// A field as a value.
    pub(super) fn value(&self, name: &str) -> Option<Value> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// Puts a field in its place, or behind the others.
    pub(super) fn set(&mut self, name: &str, value: &impl Serialize) {
        // Plain data with text for keys always becomes JSON.
        let Ok(value) = serde_json::value::to_raw_value(value) else {
            return;
        };
        let mut fields = self.0.iter_mut().rev();
        match fields.find(|(n, _)| n == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.into(), value)),
        }
    }

    /// Puts a field there that is missing.
    pub(super) fn add(&mut self, name: &str, value: &impl Serialize) {
        if self.get(name).is_none() {
            self.set(name, value);
        }
    }

    /// The object as one line, with the end that the line before it had.
    pub(super) fn line(&self, end: &[u8]) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.extend_from_slice(end);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_changed_stays_as_it_was_written() {
        let text = r#"{"z":1.50,"a":{"n":123456789012345678901234567890},"m":"\u00e9","a2":[ ]}"#;
        let mut fields = Fields::read(text.as_bytes()).unwrap();
        assert_eq!(fields.line(b"\r\n"), format!("{text}\r\n").into_bytes());
        fields.set("z", &true);
        fields.set("new", &1);
        fields.add("m", &2);
        let changed = text
            .replace("1.50", "true")
            .replace("[ ]}", r#"[ ],"new":1}"#);
        assert_eq!(fields.line(b""), changed.into_bytes());
    }

    #[test]
    fn the_last_of_two_counts_and_what_is_no_object_is_none() {
        let fields = Fields::read(br#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(fields.value("a"), Some(2.into()));
        assert!(Fields::read(b"[1]").is_none());
        assert!(Fields::read(b"{\"a\":1").is_none());
        assert!(Fields::read(b"{} x").is_none());
    }
}
