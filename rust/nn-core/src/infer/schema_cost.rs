//! What JSON schemas may ask of llguidance.
//!
//! It has limits of its own, but not for everything: how long it takes to find the remainders of `multipleOf`, and how often
//! it asks whether expressions can hold at once, can be counted in the schema only. The three languages count alike.

use std::collections::HashMap;

use crate::format::{Table, Value};

/// Of the least common multiple of all `multipleOf`, in units of their last decimal place: llguidance has a state for each
/// remainder, and goes through all of them. Its own arithmetic has 32 bits, which this cannot exceed.
const MOST_MULTIPLE: u64 = 10_000;

/// Of all expressions, and of the names of properties that expressions of `patternProperties` are tried on.
const MOST_CHARACTERS: u64 = 8192;

/// How often expressions are held against others; each time takes half a millisecond at most, if they are not long.
const MOST_CHECKS: u64 = 2000;

/// Of schemas within each other, counted along `$ref`.
const MOST_LEVELS: usize = 128;

/// What the expression of a `format` counts.
const FORMAT_CHARACTERS: u64 = 150;
/// Shorter expressions count as so many characters.
const SHORT: u64 = 100;
/// Counts end here.
const MANY: u64 = 1_000_000_000;
/// Of ten: more is beyond [`MOST_MULTIPLE`].
const MOST_POWER: i64 = 5;

/// Keywords that hold for no text. A `$ref` beside these alone is shared, not held against anything.
const ANNOTATIONS: [&str; 15] = [
    "$anchor",
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "id",
    "$comment",
    "title",
    "description",
    "default",
    "readOnly",
    "writeOnly",
    "examples",
    "contentMediaType",
    "contentEncoding",
];

/// Keywords with schemas, or values, of which some or all hold at the same place.
const APPLICATORS: [&str; 5] = ["anyOf", "oneOf", "allOf", "enum", "$ref"];

/// That the schemas together stay within the limits; otherwise what is beyond one. Time in proportion to their size.
pub(super) fn check_cost(schemas: &[&Value]) -> Result<(), String> {
    check_multiples(schemas)?;
    let (mut checks, mut characters) = (0, 0);
    for schema in schemas {
        let mut counter = Counter::new(schema);
        let objects = objects_in(schema);
        for one in &objects {
            characters += expressions_of(one).0;
            if let (true, Some(Value::Table(names))) = (counter.has_patterns, one.get("properties")) {
                characters += names.names().map(length).sum::<u64>();
            }
        }
        if characters > MOST_CHARACTERS {
            return Err(format!(
                "its patterns, and the names of properties beside patternProperties, have more than {MOST_CHARACTERS} \
                 characters"
            ));
        }
        for one in objects {
            checks += counter.checks(one)?;
        }
    }
    if checks > MOST_CHECKS {
        return Err(format!(
            "its patterns, formats and patternProperties would be held against each other more than {MOST_CHECKS} times"
        ));
    }
    Ok(())
}

fn check_multiples(schemas: &[&Value]) -> Result<(), String> {
    let multiples: Vec<(u64, i64)> = schemas
        .iter()
        .flat_map(|schema| objects_in(schema))
        .filter_map(|one| one.get("multipleOf").and_then(digits_of))
        .collect();
    let places = multiples.iter().map(|(_, exponent)| -exponent).max().unwrap_or(0).max(0);
    let mut least = 1;
    for (number, exponent) in multiples {
        let power = u32::try_from((places + exponent).min(MOST_POWER)).unwrap_or_default();
        let scaled = number * 10_u64.pow(power);
        if scaled <= MOST_MULTIPLE {
            least = least / divisor(least, scaled) * scaled;
        }
        if scaled.max(least) > MOST_MULTIPLE {
            return Err(format!(
                "the least common multiple of its multipleOf, in units of their last decimal place, is more than \
                 {MOST_MULTIPLE}"
            ));
        }
    }
    Ok(())
}

/// The greatest that two positive numbers have in common.
fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A positive number as a whole number without zeros at its end, and a power of ten; `None` for others, which llguidance
/// refuses.
fn digits_of(value: &Value) -> Option<(u64, i64)> {
    let text = match value {
        Value::Integer(number) if *number > 0 => number.to_string(),
        Value::Float(number) if *number > 0.0 && number.is_finite() => format!("{number:e}"),
        _ => return None,
    };
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let kept = digits.trim_end_matches('0');
    let point = i64::try_from(whole.len()).ok()? - i64::try_from(kept.len()).ok()?;
    // More digits than the limit has are beyond it, whatever they are.
    let number = kept.parse().unwrap_or(u64::MAX).min(MOST_MULTIPLE + 1);
    Some((number, power.parse::<i64>().ok()? + point))
}

/// All objects in a JSON value.
fn objects_in(value: &Value) -> Vec<&Table> {
    let (mut found, mut waiting) = (Vec::new(), vec![value]);
    while let Some(value) = waiting.pop() {
        match value {
            Value::Table(table) => {
                found.push(table);
                waiting.extend(table.iter().map(|(_, value)| value));
            }
            Value::List(values) => waiting.extend(values),
            _ => {}
        }
    }
    found
}

fn length(text: &str) -> u64 {
    text.chars().count() as u64
}

/// How many characters the expressions of one schema have, and how many of them are names in patternProperties.
fn expressions_of(schema: &Table) -> (u64, u64) {
    let pattern = schema.get("pattern").and_then(Value::as_text).map_or(0, length);
    let Some(Value::Table(named)) = schema.get("patternProperties") else { return (pattern, 0) };
    (pattern + named.names().map(length).sum::<u64>(), named.names().count() as u64)
}

/// How many characters the expressions of one schema count, with that of its format.
fn own_characters(schema: &Table) -> u64 {
    let format = schema.get("format").and_then(Value::as_text).map_or(0, |_| FORMAT_CHARACTERS);
    expressions_of(schema).0 + format
}

/// A product, or where counts end.
fn times(a: u64, b: u64) -> u64 {
    a.saturating_mul(b).min(MANY)
}

/// What a schema is when references in it are followed: it holds if one of `ways` holds. In each way, properties have so many
/// places as `named` says, and what has no name, items too, has `rest`. At no place hold more than `expressions` characters of
/// expressions at once, and `patterns` of patternProperties.
#[derive(Clone)]
struct Size<'s> {
    ways: u64,
    named: HashMap<&'s str, u64>,
    rest: u64,
    expressions: u64,
    patterns: u64,
}

impl<'s> Size<'s> {
    /// Of a schema that holds in so many ways, without anything in it.
    fn of(ways: u64) -> Self {
        Self { ways, named: HashMap::new(), rest: 0, expressions: 0, patterns: 0 }
    }

    fn places(&self) -> u64 {
        times(self.ways, 1 + self.named.values().sum::<u64>() + self.rest)
    }

    fn either(mut self, other: &Self) -> Self {
        for (name, places) in &other.named {
            let mine = self.named.entry(name).or_default();
            *mine = (*mine).max(*places);
        }
        self.ways = (self.ways + other.ways).min(MANY);
        self.rest = self.rest.max(other.rest);
        self.expressions = self.expressions.max(other.expressions);
        self.patterns = self.patterns.max(other.patterns);
        self
    }

    /// Ways of one meet those of the other, and properties meet those of the same name, or what has none.
    fn both(&self, other: &Self) -> Self {
        let (mine, others) = (self.rest.max(1), other.rest.max(1));
        let mut named: HashMap<&'s str, u64> =
            self.named.iter().map(|(name, places)| (*name, times(*places, others))).collect();
        for (name, places) in &other.named {
            named.insert(name, times(self.named.get(name).copied().unwrap_or(mine), *places));
        }
        Self {
            ways: times(self.ways, other.ways),
            named,
            rest: if self.rest > 0 || other.rest > 0 { times(mine, others) } else { 0 },
            expressions: (self.expressions + other.expressions).min(MANY),
            patterns: (self.patterns + other.patterns).min(MANY),
        }
    }

    /// With a schema of a property, or of what has no name.
    fn add(&mut self, name: Option<&'s str>, child: &Self) {
        match name {
            Some(name) => _ = self.named.insert(name, child.places()),
            None => self.rest = (self.rest + child.places()).min(MANY),
        }
        self.expressions = self.expressions.max(child.expressions);
        self.patterns = self.patterns.max(child.patterns);
    }
}

/// Counts how often the expressions of one document are held against others.
struct Counter<'s> {
    root: &'s Value,
    sizes: HashMap<*const Table, Size<'s>>,
    has_patterns: bool,
    /// Below another id, references would begin there.
    nested: bool,
    /// Of expressions.
    free: bool,
}

impl<'s> Counter<'s> {
    fn new(root: &'s Value) -> Self {
        let objects = objects_in(root);
        let is_text = |one: &Table, key| one.get(key).and_then(Value::as_text).is_some();
        Self {
            root,
            sizes: HashMap::new(),
            has_patterns: objects.iter().any(|one| one.get("patternProperties").and_then(Value::as_table).is_some()),
            nested: objects.iter().skip(1).any(|one| is_text(one, "$id") || is_text(one, "id")),
            free: objects.iter().all(|one| own_characters(one) == 0),
        }
    }

    /// Those for the schema at one place, were it the only one.
    fn checks(&mut self, schema: &'s Table) -> Result<u64, String> {
        if self.free {
            return Ok(0);
        }
        let parts = self.parts(schema, 0)?;
        let met = if parts.len() == 1 {
            // Only its own patternProperties are held against each other.
            let (characters, names) = expressions_of(schema);
            Size { expressions: if names > 1 { characters } else { 0 }, patterns: names, ..Size::of(1) }
        } else {
            all_of(&parts)
        };
        if met.expressions == 0 {
            return Ok(0);
        }
        let pairs = 1 + times(met.patterns, met.patterns.saturating_sub(1)) / 2;
        let long = met.expressions.max(SHORT);
        Ok(times(times(met.places(), pairs), times(long, long)) / (SHORT * SHORT))
    }

    /// What all holds at the place of a schema, each by itself.
    fn parts(&mut self, schema: &'s Table, level: usize) -> Result<Vec<Size<'s>>, String> {
        let mut parts = Vec::new();
        if schema.names().any(|key| !ANNOTATIONS.contains(&key) && !APPLICATORS.contains(&key)) {
            parts.push(self.own(schema, level)?);
        }
        for key in ["anyOf", "oneOf"] {
            let mut either: Option<Size<'s>> = None;
            for one in list(schema, key) {
                let found = self.size(one, level)?;
                either = Some(match either {
                    Some(either) => either.either(&found),
                    None => found,
                });
            }
            parts.extend(either);
        }
        if let Some(Value::List(values)) = schema.get("enum") {
            parts.push(Size::of((values.len() as u64).max(1)));
        }
        for one in list(schema, "allOf") {
            parts.push(self.size(one, level)?);
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_text) {
            parts.push(self.referred(reference, level)?);
        }
        Ok(parts)
    }

    /// What a schema says by itself, with those of its properties and items.
    fn own(&mut self, schema: &'s Table, level: usize) -> Result<Size<'s>, String> {
        let mut made = Size { expressions: own_characters(schema), patterns: expressions_of(schema).1, ..Size::of(1) };
        let mut children: Vec<(Option<&'s str>, &'s Value)> = Vec::new();
        if let Some(Value::Table(named)) = schema.get("properties") {
            children.extend(named.iter().map(|(name, child)| (Some(name), child)));
        }
        if let Some(Value::Table(named)) = schema.get("patternProperties") {
            children.extend(named.iter().map(|(_, child)| (None, child)));
        }
        for key in ["items", "prefixItems", "additionalItems", "additionalProperties"] {
            match schema.get(key) {
                Some(Value::List(several)) => children.extend(several.iter().map(|child| (None, child))),
                Some(child) => children.push((None, child)),
                None => {}
            }
        }
        for (name, child) in children {
            if matches!(child, Value::Table(_)) {
                let child = self.size(child, level)?;
                made.add(name, &child);
            }
        }
        Ok(made)
    }

    fn size(&mut self, value: &'s Value, level: usize) -> Result<Size<'s>, String> {
        let Value::Table(schema) = value else { return Ok(Size::of(1)) };
        let key = std::ptr::from_ref(schema);
        if let Some(known) = self.sizes.get(&key) {
            return Ok(known.clone());
        }
        if level == MOST_LEVELS {
            return Err(format!("it has more than {MOST_LEVELS} schemas within each other, counted along $ref"));
        }
        self.sizes.insert(key, Size::of(1)); // to a schema within itself
        let met = all_of(&self.parts(schema, level + 1)?);
        self.sizes.insert(key, met.clone());
        Ok(met)
    }

    /// The size of what a reference leads to. One that only llguidance follows may lead to anything.
    fn referred(&mut self, reference: &str, level: usize) -> Result<Size<'s>, String> {
        if self.nested || reference.contains('%') || (reference != "#" && !reference.starts_with("#/")) {
            return Ok(Size { expressions: 1, ..Size::of(MANY) });
        }
        let mut place = self.root;
        for name in reference.split('/').skip(1) {
            let name = name.replace("~1", "/").replace("~0", "~");
            let found = match place {
                Value::Table(table) => table.get(&name),
                Value::List(values) if name.bytes().all(|digit| digit.is_ascii_digit()) => {
                    name.parse::<usize>().ok().and_then(|at| values.get(at))
                }
                _ => None,
            };
            let Some(found) = found else { return Ok(Size::of(1)) };
            place = found;
        }
        self.size(place, level)
    }
}

/// What holds where all of these do.
fn all_of<'s>(parts: &[Size<'s>]) -> Size<'s> {
    parts.iter().fold(Size::of(1), |met, part| met.both(part))
}

/// The list that a keyword has, or an empty one.
fn list<'s>(schema: &'s Table, key: &str) -> &'s [Value] {
    match schema.get(key) {
        Some(Value::List(values)) => values,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::json::parse_json;

    /// The cases that Python and Go have, too.
    #[test]
    fn what_schemas_may_ask_for() {
        let Ok(Value::List(cases)) = parse_json(include_bytes!("../../../../tests/serve/schema_costs.json")) else {
            panic!("it is a list");
        };
        assert!(cases.len() > 50);
        for case in &cases {
            let case = case.as_table().unwrap();
            let found = check_cost(&[case.get("schema").unwrap()]).err();
            assert_eq!(
                found.as_deref(),
                case.get("problem").and_then(Value::as_text),
                "{}",
                case.get("schema").unwrap().shown()
            );
        }
    }
}
