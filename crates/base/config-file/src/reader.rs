//! Serde deserializer for the tree of a file. It omits values to be skipped, and reports errors by kind and key path.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

use crate::error::{KeyPath, Problem, Segment};
use crate::parts::PARTS;

// By address instead of by path: the tree is borrowed while it is read, so no value moves between two passes.
/// Values to leave out, by their address in the tree.
type Skipped<'t> = BTreeSet<*const Spanned<DeValue<'t>>>;

/// An error and the path to the value that caused it, innermost step first.
#[derive(Debug)]
pub(crate) struct ReadError {
    pub(crate) problem: Problem,
    steps: Vec<Segment>,
}

impl ReadError {
    /// The way to the value from the top.
    pub(crate) fn path(&self) -> KeyPath {
        KeyPath(self.steps.iter().rev().cloned().collect())
    }

    fn within(mut self, step: Segment) -> Self {
        self.steps.push(step);
        self
    }
}

impl From<Problem> for ReadError {
    fn from(problem: Problem) -> Self {
        Self { problem, steps: Vec::new() }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

impl std::error::Error for ReadError {}

impl Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Problem::Wrong(message.to_string()).into()
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Problem::WrongType { expected: plain_expected(&expected.to_string()), found: plain_found(&found) }
            .into()
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Problem::UnknownKey { key: key.to_owned(), known: known.to_vec() }.into()
    }

    fn unknown_variant(value: &str, known: &'static [&'static str]) -> Self {
        let known = known.iter().map(|&name| name.to_owned()).collect();
        Problem::UnknownValue { value: value.to_owned(), known }.into()
    }

    fn missing_field(key: &'static str) -> Self {
        Problem::Missing(key).into()
    }
}

/// Translates a type that serde expected into the operator's terms.
fn plain_expected(expected: &str) -> String {
    // Serde has a text for the expected type, and no code. A text that is not listed is shown as it is.
    match expected {
        "a boolean" => "`true` or `false`".to_owned(),
        "a string" => "text in quotes".to_owned(),
        "path string" => "a path in quotes".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a table".to_owned(),
        "u8" => format!("a whole number from 0 to {}", u8::MAX),
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        table if table.starts_with("struct ") => "a table".to_owned(),
        other => other.to_owned(),
    }
}

/// Translates a value that serde found into the operator's terms.
fn plain_found(found: &Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => format!("`{value}`"),
        Unexpected::Signed(value) => format!("the number {value}"),
        Unexpected::Unsigned(value) => format!("the number {value}"),
        Unexpected::Float(value) => format!("the number {value}"),
        Unexpected::Str(value) => format!("the text {value:?}"),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a table".to_owned(),
        other => other.to_string(),
    }
}

/// One value of the tree.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a, 't> {
    value: &'a Spanned<DeValue<'t>>,
    skipped: &'a Skipped<'t>,
}

impl<'a, 't> Node<'a, 't> {
    /// A view of `value` without the values in `skipped`.
    pub(crate) fn new(value: &'a Spanned<DeValue<'t>>, skipped: &'a Skipped<'t>) -> Self {
        Self { value, skipped }
    }

    fn kept(&self, value: &'a Spanned<DeValue<'t>>) -> Option<Self> {
        (!self.skipped.contains(&std::ptr::from_ref(value))).then_some(Self { value, ..*self })
    }

    fn items(self, array: &'a DeArray<'t>) -> Items<'a, 't> {
        let kept = array.iter().enumerate().filter_map(|(index, item)| Some((index, self.kept(item)?)));
        Items(kept.collect::<Vec<_>>().into_iter())
    }

    fn entries(self, table: &'a DeTable<'t>) -> Entries<'a, 't> {
        let kept = table.iter().filter_map(|(key, value)| Some((key, self.kept(value)?)));
        Entries { rest: kept.collect::<Vec<_>>().into_iter(), current: None }
    }

    /// Refuses the first key of a table of [parts](PARTS) that no part has.
    fn refuse_unknown(self, table: &'a DeTable<'t>, known: Vec<&'static str>) -> Result<(), ReadError> {
        // Skipped entries are excluded. Otherwise the next pass would find the same key again, and stop
        // there.
        let unknown = self.entries(table).rest.map(|(key, _)| key.get_ref().as_ref());
        let Some(key) = unknown.into_iter().find(|key| !known.contains(key)).map(str::to_owned) else {
            return Ok(());
        };
        let error = ReadError::from(Problem::UnknownKey { key: key.clone(), known });
        Err(error.within(Segment::Key(key)))
    }
}

impl<'de> Deserializer<'de> for Node<'_, '_> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.value.get_ref() {
            DeValue::String(text) => visitor.visit_str(text),
            DeValue::Boolean(value) => visitor.visit_bool(*value),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => visitor.visit_i64(number),
                Err(_) => Err(Problem::Wrong(format!("{number} is too large a number")).into()),
            },
            DeValue::Float(number) => visitor.visit_f64(number.as_str().parse().unwrap_or(f64::NAN)),
            value @ DeValue::Datetime(_) => {
                Err(Error::invalid_type(Unexpected::Other(&kind(value)), &visitor))
            }
            DeValue::Array(array) => visitor.visit_seq(self.items(array)),
            DeValue::Table(table) => visitor.visit_map(self.entries(table)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        // TOML has no null: an option that is present has a value.
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    /// Serde would take a list too, field by field.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.value.get_ref() {
            DeValue::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &visitor)),
            // The name of the struct is the only thing that the macro can pass through a generic
            // deserializer.
            DeValue::Table(table) if name == PARTS => {
                let known = RefCell::default();
                // Before the check of unknown keys: only reading the parts shows which keys they have.
                let value = visitor.visit_seq(Parts { node: self, table, known: &known })?;
                self.refuse_unknown(table, known.into_inner())?;
                Ok(value)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let DeValue::String(text) = self.value.get_ref() else {
            let words: Vec<_> = variants.iter().map(|word| format!("{word:?}")).collect();
            let expected = format!("one of {}", words.join(", "));
            return Err(Problem::WrongType { expected, found: kind(self.value.get_ref()) }.into());
        };
        visitor.visit_enum(Word(text))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier ignored_any
    }
}

/// The fields of a table of [parts](PARTS): each gets the same table, and reads its own keys.
struct Parts<'a, 't, 'k> {
    node: Node<'a, 't>,
    table: &'a DeTable<'t>,
    /// Keys of the parts that were read.
    known: &'k RefCell<Vec<&'static str>>,
}

impl<'de> SeqAccess<'de> for Parts<'_, '_, '_> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        // Never the end: the visitor of `table_of_parts!` requests one element for each field.
        seed.deserialize(Part { node: self.node, table: self.table, known: self.known }).map(Some)
    }
}

/// A table of which one part is read. Parts are structs, so that all other methods of the deserializer have no use.
struct Part<'a, 't, 'k> {
    node: Node<'a, 't>,
    table: &'a DeTable<'t>,
    known: &'k RefCell<Vec<&'static str>>,
}

impl<'de> Deserializer<'de> for Part<'_, '_, '_> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, ReadError> {
        Err(Error::custom("a part of a table is a struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let Self { node, table, known } = self;
        if name == PARTS {
            return visitor.visit_seq(Parts { node, table, known });
        }
        known.borrow_mut().extend(fields);
        // Parts deny unknown fields, so the keys of the other parts must not reach this one.
        let mut entries = node.entries(table);
        entries.keep(|key| fields.contains(&key));
        visitor.visit_map(entries)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Description of `value` in the operator's terms.
fn kind(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the text {text:?}"),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => format!("`{value}`"),
        DeValue::Datetime(time) => format!("the time {time}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// The items of a list that were not left out, with their true places.
struct Items<'a, 't>(std::vec::IntoIter<(usize, Node<'a, 't>)>);

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        let Some((index, item)) = self.0.next() else { return Ok(None) };
        seed.deserialize(item).map(Some).map_err(|error| error.within(Segment::Index(index)))
    }
}

/// The entries of a table that were not left out.
struct Entries<'a, 't> {
    rest: std::vec::IntoIter<(&'a Spanned<DeString<'t>>, Node<'a, 't>)>,
    current: Option<(&'a Spanned<DeString<'t>>, Node<'a, 't>)>,
}

impl Entries<'_, '_> {
    /// Leaves out the entries with other keys than those that `is_kept` permits.
    fn keep(&mut self, is_kept: impl Fn(&str) -> bool) {
        let kept = self.rest.by_ref().filter(|(key, _)| is_kept(key.get_ref().as_ref()));
        self.rest = kept.collect::<Vec<_>>().into_iter();
    }
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        self.current = self.rest.next();
        let Some((key, _)) = self.current else { return Ok(None) };
        let text: StrDeserializer<'_, ReadError> = key.get_ref().as_ref().into_deserializer();
        seed.deserialize(text)
            .map(Some)
            .map_err(|error| error.within(Segment::Key(key.get_ref().to_string())))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ReadError> {
        let (key, value) = self.current.take().expect("serde asks for a key before its value");
        seed.deserialize(value).map_err(|error| error.within(Segment::Key(key.get_ref().to_string())))
    }
}

/// A string that denotes a variant without content.
struct Word<'a>(&'a str);

impl<'de> EnumAccess<'de> for Word<'_> {
    type Error = ReadError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), ReadError> {
        let text: StrDeserializer<'_, ReadError> = self.0.into_deserializer();
        Ok((seed.deserialize(text)?, self))
    }
}

impl<'de> VariantAccess<'de> for Word<'_> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _seed: T) -> Result<T::Value, ReadError> {
        Err(Error::custom("words of the configuration have no content"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, _visitor: V) -> Result<V::Value, ReadError> {
        Err(Error::custom("words of the configuration have no content"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, ReadError> {
        Err(Error::custom("words of the configuration have no content"))
    }
}
