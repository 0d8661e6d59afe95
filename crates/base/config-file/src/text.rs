//! Values written as text.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{self, Visitor};

/// A value written as text, with a description of its form.
pub trait Written: FromStr<Err = String> {
    /// Follows "expected" in a message about a number or a table.
    const EXPECTED: &'static str;
}

/// Reads a [`Written`] value.
#[derive(Debug)]
pub struct Text<T>(PhantomData<T>);

impl<T> Text<T> {
    /// Creates the visitor.
    #[expect(clippy::new_without_default, reason = "a visitor has no default value")]
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: Written> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// Implements `Deserialize` for [`Written`] types.
#[macro_export]
macro_rules! read_as_text {
    ($($type:ty),+) => {$(
        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str($crate::Text::new())
            }
        }
    )+};
}

read_as_text!(crate::Size, crate::SizeLimit, crate::Rate, crate::Period, crate::PeriodLimit);
