//! Options of models and of training: one list gives the struct, its defaults, the flags of the command and their help,
//! and the reading from files.

use crate::error::{Error, Result};
use crate::format::limits::COUNT;
use crate::format::value::{Table, Value, quoted};

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
    /// A text.
    Text,
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

macro_rules! option_types {
    ($($type:ty: $kind:ident, $read:expr;)*) => {$(
        impl OptionType for $type {
            const KIND: Kind = Kind::$kind;
            fn read(value: &Value) -> Option<Self> {
                $read(value)
            }
            fn write(&self) -> Value {
                (*self).into()
            }
        }
    )*};
}

option_types! {
    usize: Whole, Value::as_integer;
    i64: Whole, Value::as_integer;
    f64: Number, Value::as_number;
    bool: Flag, |value: &Value| if let Value::Bool(value) = value { Some(*value) } else { None };
}

impl OptionType for String {
    const KIND: Kind = Kind::Text;
    fn read(value: &Value) -> Option<Self> {
        value.as_text().map(str::to_owned)
    }
    fn write(&self) -> Value {
        self.as_str().into()
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
    Error::value(format!("{name} is {}; it must be {allowed}", value.shown()))
}

/// An option that there is not, of the "model" or of "training".
pub fn unknown(what: &str, name: &str, specs: &[OptionSpec]) -> Error {
    let rest = match nearest(name, specs.iter().map(|spec| spec.name)) {
        Some(near) => format!("did you mean {near}?"),
        None => "`train --help` lists them".to_owned(),
    };
    Error::value(format!("there is no {what} option {}; {rest}", quoted(name)))
}

/// The name that was meant: one that a change of a letter makes of it (from six letters on two), or one that it is a part
/// of or that is a part of it; of several the one with the fewest changes, then the first. Python and Go find the same.
fn nearest(name: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    // No name of ours has as many characters.
    const LONGEST: usize = 64;
    let wanted = name.to_lowercase().replace('-', "_");
    let letters = wanted.chars().count();
    if letters > LONGEST {
        return None;
    }
    let most = if letters >= 6 { 2 } else { 1 };
    let is_part = |of: &str| letters.min(of.len()) >= 3 && (of.contains(&*wanted) || wanted.contains(of));
    known
        .map(|candidate| (strsim::osa_distance(&wanted, candidate), candidate))
        .filter(|(changes, candidate)| *changes <= most || is_part(candidate))
        .min_by_key(|(changes, _)| *changes)
        .map(|(_, candidate)| candidate)
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

            /// All options by name, in their order; none is a value.
            pub fn values(&self) -> $crate::format::Table {
                $crate::format::Table::from([
                    $((stringify!($field), $crate::options::OptionType::write(&self.$field)),)*
                ])
            }
        }
    };
}
pub(crate) use options;

/// What an option must be that is a whole number, from so many on.
pub(crate) fn whole_rule(least: usize) -> &'static str {
    if least == 0 { "a whole number, from 0 to 2147483647" } else { "a whole number, from 1 to 2147483647" }
}

/// The least and the largest value of a number by the name of its option, and the rule that messages give.
pub(crate) type Bounds = (&'static str, f64, f64, &'static str);

/// Refuses numbers that are outside their bounds; none is within them.
pub(crate) fn check_bounds(values: &Table, bounds: &[Bounds]) -> Result<()> {
    for (name, least, most, rule) in bounds {
        let value = values.get(name).unwrap_or(&Value::None);
        if value.as_number().is_some_and(|number| !(*least..=*most).contains(&number)) {
            return Err(refuse(name, value, rule));
        }
    }
    Ok(())
}

/// The rule of a number.
pub(crate) fn rule_of(bounds: &[Bounds], name: &str) -> Option<&'static str> {
    bounds.iter().find(|bounds| bounds.0 == name).map(|bounds| bounds.3)
}

/// Refuses counts that are below 1, or more than kernels count in, in the order of `names`.
pub(crate) fn check_counts(values: &Table, names: &[&str], least: usize) -> Result<()> {
    for name in names {
        let value = values.get(name).unwrap_or(&Value::None);
        if *value != Value::None && value.as_integer().is_none_or(|count: usize| !(least..=COUNT).contains(&count)) {
            return Err(refuse(name, value, whole_rule(least)));
        }
    }
    Ok(())
}

/// Refuses the value of an option unless the condition holds.
pub(crate) fn require<T: OptionType>(condition: bool, name: &str, value: &T, allowed: &str) -> Result<()> {
    if condition { Ok(()) } else { Err(refuse(name, &value.write(), allowed)) }
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_name_that_was_meant() {
        let known = ["num_layers", "num_heads", "learning_rate", "eps", "seed"];
        let long = "num_layers_".repeat(7);
        let cases = [
            ("layers", Some("num_layers")),
            ("num_layer", Some("num_layers")),
            ("Num-Layers", Some("num_layers")),
            ("learning_rte", Some("learning_rate")),
            ("head", Some("num_heads")),
            ("speed", Some("seed")),
            ("esed", Some("seed")),
            ("sdee", None),
            ("ep", Some("eps")),
            ("num", Some("num_heads")),
            ("the_seed_of_it", Some("seed")),
            ("colour", None),
            ("", None),
            ("é", None),
            ("n", None),
            (&*long, None),
        ];
        for (name, meant) in cases {
            assert_eq!(nearest(name, known.into_iter()), meant, "{name}");
        }
    }
}

#[cfg(test)]
pub(crate) mod bounds {
    use super::*;

    /// Tries the numbers of a group of tests/bounds.json at their bounds and just outside them.
    pub(crate) fn check(group: &str, specs: &[OptionSpec], read: impl Fn(&str, Value) -> Result<()>) {
        let known: serde_json::Value = serde_json::from_str(include_str!("../../../tests/bounds.json")).unwrap();
        let known = known[group].as_object().unwrap();
        let numbers = specs.iter().filter(|spec| matches!(spec.kind, Kind::Number | Kind::NumberOrNone));
        assert_eq!(numbers.clone().count(), known.len());
        for spec in numbers {
            let bound = |key: &str| known[spec.name][key].as_f64().unwrap();
            let (least, most, rule) = (bound("least"), bound("most"), known[spec.name]["rule"].as_str().unwrap());
            for value in [least, most] {
                read(spec.name, value.into()).unwrap_or_else(|error| panic!("{value}: {error}"));
            }
            let outside = [least.next_down(), most.next_up(), f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
            for value in outside.map(Value::from).into_iter().chain(["1".into(), true.into()]) {
                let shown = value.shown();
                let error = read(spec.name, value).expect_err(&shown).to_string();
                assert_eq!(error, format!("{} is {shown}; it must be {rule}", spec.name));
            }
        }
    }
}
