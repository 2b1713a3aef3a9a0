//! Options of models and of training: one list gives the struct, its defaults, the flags of the command and their help,
//! and the reading from files.

use crate::error::{Error, Result};
use crate::format::value::{Value, quoted};

/// What an option may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number.
    Whole,
    /// A whole number, or none.
    WholeOrNone,
    /// A number.
    Number,
    /// A number, or none.
    NumberOrNone,
    /// True or false.
    Flag,
    /// One of some words.
    Choice(&'static [&'static str]),
}

/// One option as a flag of a command shows it.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its name in files.
    pub name: &'static str,
    /// What it may hold.
    pub kind: Kind,
    /// What it is for.
    pub help: &'static str,
}

/// A type that an option can have.
pub(crate) trait OptionType: Sized {
    const KIND: Kind;
    fn read(value: &Value) -> Option<Self>;
    fn write(&self) -> Value;
}

impl OptionType for usize {
    const KIND: Kind = Kind::Whole;
    fn read(value: &Value) -> Option<Self> {
        value.as_integer()
    }
    fn write(&self) -> Value {
        (*self).into()
    }
}

impl OptionType for i64 {
    const KIND: Kind = Kind::Whole;
    fn read(value: &Value) -> Option<Self> {
        value.as_integer()
    }
    fn write(&self) -> Value {
        (*self).into()
    }
}

impl OptionType for f64 {
    const KIND: Kind = Kind::Number;
    fn read(value: &Value) -> Option<Self> {
        value.as_number()
    }
    fn write(&self) -> Value {
        (*self).into()
    }
}

impl OptionType for bool {
    const KIND: Kind = Kind::Flag;
    fn read(value: &Value) -> Option<Self> {
        if let Value::Bool(value) = value { Some(*value) } else { None }
    }
    fn write(&self) -> Value {
        (*self).into()
    }
}

impl<T: OptionType> OptionType for Option<T> {
    const KIND: Kind = match T::KIND {
        Kind::Whole => Kind::WholeOrNone,
        _ => Kind::NumberOrNone,
    };
    fn read(value: &Value) -> Option<Self> {
        if *value == Value::None { Some(None) } else { T::read(value).map(Some) }
    }
    fn write(&self) -> Value {
        self.as_ref().map_or(Value::None, T::write)
    }
}

/// What is wrong with the value of an option.
pub(crate) fn refuse(name: &str, value: &Value, allowed: &str) -> Error {
    Error::value(format!("{name} is {}; it must be {allowed}", value.repr()))
}

/// An option that there is not.
pub(crate) fn unknown(what: &str, name: &str, specs: &[OptionSpec]) -> Error {
    let mut known: Vec<_> = specs.iter().map(|spec| spec.name).collect();
    known.sort_unstable();
    Error::value(format!("there is no {what} option {}; there are {}", quoted(name), known.join(", ")))
}

/// Defines a struct of options: `name: type = default, "help"`.
macro_rules! options {
    (
        $(#[$meta:meta])*
        $what:literal struct $name:ident {
            $($field:ident: $type:ty = $default:expr, $help:literal;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $(#[doc = $help] pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $name {
            /// All options, in their order.
            pub const OPTIONS: &[$crate::options::OptionSpec] = &[$(
                $crate::options::OptionSpec {
                    name: stringify!($field),
                    kind: <$type as $crate::options::OptionType>::KIND,
                    help: $help,
                },
            )*];

            /// From a table of options, the others at their defaults. `Error::Value` names an option that there is not,
            /// or a value that it may not have.
            pub fn from_table(values: &$crate::format::Table) -> $crate::error::Result<Self> {
                let mut options = Self::default();
                for (name, value) in values.iter() {
                    options.set(name, value)?;
                }
                options.validate()?;
                Ok(options)
            }

            fn set(&mut self, name: &str, value: &$crate::format::Value) -> $crate::error::Result<()> {
                match name {
                    $(stringify!($field) => {
                        self.$field = $crate::options::OptionType::read(value)
                            .ok_or_else(|| $crate::options::refuse(name, value, Self::allowed(name)))?;
                    })*
                    _ => return Err($crate::options::unknown($what, name, Self::OPTIONS)),
                }
                Ok(())
            }

            /// All options by name, in their order.
            fn values(&self) -> $crate::format::Table {
                $crate::format::Table::from([
                    $((stringify!($field), $crate::options::OptionType::write(&self.$field)),)*
                ])
            }
        }
    };
}
pub(crate) use options;

/// Refuses the value of an option unless the condition holds.
pub(crate) fn require<T: OptionType>(condition: bool, name: &str, value: &T, allowed: &str) -> Result<()> {
    if condition { Ok(()) } else { Err(refuse(name, &value.write(), allowed)) }
}
