//! How the config.json of a Hugging Face folder describes a model of one of the families.
//!
//! An option that is neither read here nor known to change nothing is refused by its name, unless it says no: false, null or
//! an empty list. So a model runs as transformers runs it, or not at all.

use std::borrow::Cow;

use nn_ffi::RopeLayout;

use super::families::{CAPS, Experts, FAMILIES, Family, Gemma, SCALES, Switch, Windows, says_no};
use super::given::Given;
use super::llama::{Divided, LlamaConfig, MOST_HEAD_DIM, Rope, Scaling};
use super::rope_scaling::{llama3_divisors, longrope_magnitude, rope_options, rounded, yarn_divisors, yarn_magnitude};
use crate::error::{Error, Result};
use crate::format::limits::COUNT;
use crate::format::value::quoted;
use crate::format::{Table, Value};
use crate::options::{refuse, whole_rule};

/// The options of each kind of rotary embedding; all have those of `ROPE`.
const SCALINGS: [(&str, &[&str]); 6] = [
    ("default", &[]),
    ("linear", &["factor"]),
    ("dynamic", &["factor"]),
    ("llama3", &["factor", "low_freq_factor", "high_freq_factor"]),
    ("yarn", &["factor", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"]),
    ("longrope", &["factor", "short_factor", "long_factor", "attention_factor"]),
];
const ROPE: [&str; 5] =
    ["rope_type", "type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings"];

/// Reads the content of a `config.json` of Hugging Face transformers, of a model_type among the families.
///
/// # Errors
///
/// [`Error::Value`] when it is of another model, lacks something, or asks for what this engine does not do.
pub(super) fn config_from_folder(values: &Table) -> Result<LlamaConfig> {
    let given = Given::of_table(values);
    let kind = given.get("model_type").unwrap_or(Value::None);
    let Some(family) = kind.as_text().and_then(Family::named) else {
        let names = FAMILIES.map(|family| format!("'{}'", family.name)).join(", ");
        return Err(Error::value(format!("the model_type is {}; this program runs {names}", kind.shown())));
    };
    check_options(values, &given, family)?;
    let mut activation = family.activations[0];
    for key in ["hidden_act", family.activation_key] {
        let Some(value) = given.get(key) else { continue };
        let known = family.activations.iter().find(|one| value.as_text() == Some(one.name()));
        activation = *known.ok_or_else(|| {
            let mut names: Vec<String> = family.activations.iter().map(|one| format!("'{}'", one.name())).collect();
            names.sort_by(|one, other| other.cmp(one));
            let (names, kind) = (names.join(" and "), kind.shown());
            let problem = format!("{key} is {}", value.shown());
            Error::value(format!("{problem}; this engine has {names} for model_type {kind}"))
        })?;
    }
    let (heads, hidden) = (given.whole("num_attention_heads", None)?, given.whole("hidden_size", None)?);
    let usual = if family.head_dim == 0 { hidden / heads } else { family.head_dim };
    let head_dim = given.whole("head_dim", Some(usual))?;
    let context = given.whole("max_position_embeddings", family.context)?;
    let num_layers = given.whole("num_hidden_layers", None)?;
    let (window, window_period) = windows(values, &given, family, context, num_layers)?;
    let none = Value::Table(Table::new());
    let extra = values.get("nncuda").unwrap_or(&none);
    let known = ["extended_context", "ntk_alpha", "norm_topk_prob", "capacity_factor"];
    let Some(extra) = extra.as_table().filter(|extra| extra.names().all(|name| known.contains(&name))) else {
        return Err(Error::value(format!("the options under 'nncuda' must be among {}", known.join(", "))));
    };
    let extra = Given::of_table(extra);
    let (rope_values, local_rope_base) = local_rope(values, &given, family)?;
    let mut rope = rope_from_folder(&Given::of_table(&rope_values), family, head_dim, context)?;
    let extended_context = extra.whole("extended_context", Some(context))?;
    if extended_context > context {
        if rope.scaling != Scaling::None {
            let name = rope.scaling.name();
            let problem = "extended_context of a model whose rotary embedding is scaled already";
            return Err(Error::value(format!("{problem} ({name})")));
        }
        rope.scaling = Scaling::Ntk { alpha: extra.number("ntk_alpha", Some(1.0))? };
    }
    let switch = |part: Switch| part.key.map_or(Ok(part.usual), |key| given.flag(key, part.usual));
    let kv_heads = if family.kv_heads == 0 { heads } else { family.kv_heads };
    let mut config = LlamaConfig {
        vocab_size: given.whole("vocab_size", None)?,
        hidden_size: hidden,
        num_layers,
        num_heads: heads,
        num_kv_heads: given.whole("num_key_value_heads", Some(kv_heads))?,
        head_dim,
        ffn_size: given.whole("intermediate_size", None)?,
        context,
        extended_context,
        norm_eps: given.number("rms_norm_eps", Some(family.norm_eps))?,
        rope,
        tie_embeddings: given.flag("tie_word_embeddings", family.tied)?,
        qkv_bias: switch(family.qkv_bias)?,
        o_bias: switch(family.o_bias)?,
        activation,
        window,
        window_period,
        local_rope_base,
        ..LlamaConfig::of(family)
    };
    if let Some(experts) = family.experts {
        config.ffn_size = given.whole(experts.ffn, None)?;
        config.num_experts = number_of_experts(values, &given, &experts)?;
        config.experts_per_token = given.whole("num_experts_per_tok", Some(experts.usual_chosen))?;
        config.norm_topk_prob = extra.flag("norm_topk_prob", switch(experts.norm)?)?;
        if let Some((name, usual, gate)) = experts.shared {
            config.shared_ffn_size = given.whole(name, Some(usual))?;
            config.shared_gate = gate;
        }
        if experts.biased {
            check_gpt_oss(values, config.experts_per_token)?;
        }
    }
    if family.scaled {
        for (name, _, _, of) in SCALES {
            *of(&mut config) = given.number(name, Some(1.0))?;
        }
        if config.attention_scale == 0.0 {
            return Err(Error::value("attention_multiplier is 0; it must be another number".to_owned()));
        }
    }
    if let Some(gemma) = &family.gemma {
        read_gemma(values, &given, gemma, &mut config)?;
    }
    config.validate()
}

fn number_of_experts(values: &Table, given: &Given<'_>, experts: &Experts) -> Result<usize> {
    let Some(also) = experts.also.filter(|also| given.get(also).is_some()) else {
        return given.whole(experts.count, Some(experts.usual));
    };
    let found = given.whole(also, None)?;
    check_again(values, experts.count, also, found)?;
    Ok(found)
}

/// Fails when an option says otherwise what another one has said.
fn check_again(values: &Table, name: &str, option: &str, found: usize) -> Result<()> {
    match values.get(name).filter(|value| **value != Value::None && value.as_number() != Some(found as f64)) {
        None => Ok(()),
        Some(value) => Err(Error::value(format!("{name} is {}; {option} makes it {found}", value.shown()))),
    }
}

/// Refuses what gpt-oss' files say a second time and otherwise, and a form of experts that is not read.
fn check_gpt_oss(values: &Table, chosen: usize) -> Result<()> {
    check_again(values, "experts_per_token", "num_experts_per_tok", chosen)?;
    // Without it, or with what Python takes for false, the tensors say which form they have.
    let filled = |value: &&Value| !says_no(value) && value.as_number() != Some(0.0);
    let Some(found) = values.get("quantization_config").filter(filled) else { return Ok(()) };
    let method = |table: &&Table| table.get("quant_method").and_then(Value::as_text) == Some("mxfp4");
    let Some(quantized) = found.as_table().filter(method) else {
        let problem = format!("quantization_config is {}", found.shown());
        return Err(Error::value(format!("{problem}; this engine has the quant_method 'mxfp4'")));
    };
    match quantized.names().find(|name| !["quant_method", "modules_to_not_convert"].contains(name)) {
        None => Ok(()),
        Some(name) => {
            let problem = format!("quantization_config has the option {}", quoted(name));
            Err(Error::value(format!("{problem}, which is unknown here")))
        }
    }
}

/// What Gemma's families have.
fn read_gemma(values: &Table, given: &Given<'_>, gemma: &Gemma, config: &mut LlamaConfig) -> Result<()> {
    let above = |name: &str, usual: Option<f64>| match given.number(name, usual)? {
        found if found > 0.0 => Ok(found),
        found => Err(Error::value(format!("{name} is {found:?}; it must be above 0"))),
    };
    config.norms_less_one = true;
    config.embedding_scale = (config.hidden_size as f64).sqrt();
    config.attention_scale = 1.0 / above("query_pre_attn_scalar", Some(gemma.query_scalar))?.sqrt();
    for ((name, of), usual) in CAPS.into_iter().zip(gemma.caps) {
        // Null is none.
        let usual = (values.get(name).is_none() && usual > 0.0).then_some(usual);
        if usual.is_some() || given.get(name).is_some() {
            *of(config) = above(name, usual)?;
        }
    }
    Ok(())
}

fn check_options(values: &Table, given: &Given<'_>, family: &Family) -> Result<()> {
    for (name, needed) in family.fixed {
        if let Some(value) = given.get(name).filter(|value| !needed.is(value)) {
            let problem = format!("{name} is {}; this engine has {}", value.shown(), needed.shown());
            return Err(Error::value(problem));
        }
    }
    match family.unknown_option(values) {
        None => Ok(()),
        Some((name, value)) => {
            let problem = format!("{} is {}; this engine does not know that option", quoted(name), value.shown());
            Err(Error::value(format!("{problem} of model_type '{}'", family.name)))
        }
    }
}

/// `window` and `window_period` of [`LlamaConfig`].
fn windows(
    values: &Table,
    given: &Given<'_>,
    family: &Family,
    context: usize,
    layers: usize,
) -> Result<(usize, usize)> {
    let on = family.window_flag.map_or(Ok(true), |flag| given.flag(flag, false))?;
    let usual = family.window.filter(|_| values.get("sliding_window").is_none()).map(Value::from);
    let asked = given.get("sliding_window").or(usual).filter(|_| on);
    let (window, mut period) = window_of_files(asked.as_ref(), "sliding_window", family, context)?;
    if family.has_local_rope() {
        period = given.whole("sliding_window_pattern", Some(period))?;
    }
    let Some(found) = given.get("layer_types") else { return Ok((window, period)) };
    let full = |kind: &Value| kind.as_text() == Some("full_attention");
    let sliding = |kind: &Value| kind.as_text() == Some("sliding_attention");
    let problem = format!("layer_types is {}; this engine has", found.shown());
    let kinds = if let Value::List(kinds) = &found { Some(kinds) } else { None };
    if period == 0 {
        let right = kinds.is_some_and(|kinds| kinds.iter().all(full));
        let rule = "'full_attention' in all layers";
        return if right { Ok((window, 0)) } else { Err(Error::value(format!("{problem} {rule}"))) };
    }
    if let Some(kinds) = kinds.filter(|kinds| kinds.len() == layers) {
        let first = kinds.iter().position(full).unwrap_or(layers);
        for number in [period, first + 1] {
            let right = |(at, kind): (usize, &Value)| {
                if (at + 1).is_multiple_of(number) { full(kind) } else { sliding(kind) }
            };
            if kinds.iter().enumerate().all(right) {
                return Ok((window, number));
            }
        }
    }
    let rule = format!("'sliding_attention' in all of {layers} layers, or 'full_attention' in each so-manyth");
    Err(Error::value(format!("{problem} {rule}")))
}

/// `window` and `window_period` of [`LlamaConfig`] for a window; 0 is none. Refuses one that is narrower than the context in a
/// family that has none, and none in one that needs it.
pub(super) fn window_of_files(
    window: Option<&Value>,
    name: &str,
    family: &Family,
    context: usize,
) -> Result<(usize, usize)> {
    if let Windows::Period(period) = family.windows {
        let width = window.and_then(Value::as_integer::<usize>).filter(|width| (1..=COUNT).contains(width));
        let refused = || refuse(name, window.unwrap_or(&Value::None), whole_rule(1));
        return Ok((width.ok_or_else(refused)?, period));
    }
    let Some(window) = window else { return Ok((0, 0)) };
    match window.as_integer::<i128>() {
        Some(0) => Ok((0, 0)),
        Some(width) if width >= context as i128 => Ok((0, 0)),
        Some(width) if width > 0 && family.windows == Windows::Always => Ok((width as usize, 0)),
        _ => {
            let problem =
                format!("{name} is {}; this engine attends to all of the context ({context})", window.shown());
            Err(Error::value(problem))
        }
    }
}

/// The options of the rotary embedding in layers without a window, and the base in those with one; 0 where they have the same.
/// Of the latter, transformers 5 writes an entry for each kind of layer into rope_parameters; earlier ones wrote
/// rope_local_base_freq.
fn local_rope<'v>(values: &'v Table, given: &Given<'_>, family: &Family) -> Result<(Cow<'v, Table>, f64)> {
    let Some(gemma) = family.gemma.filter(|gemma| gemma.local_base > 0.0) else {
        return Ok((Cow::Borrowed(values), 0.0));
    };
    let base = given.number("rope_local_base_freq", Some(gemma.local_base))?;
    let filled = |table: &Table, name: &str| {
        table.get(name).filter(|value| !says_no(value) && value.as_number() != Some(0.0)).cloned()
    };
    let Some(found) = filled(values, "rope_parameters") else { return Ok((Cow::Borrowed(values), base)) };
    let [full, sliding] = ["full_attention", "sliding_attention"];
    let whole = found.as_table().filter(|whole| whole.names().all(|name| name == full || name == sliding));
    let part = |kind: &str| match filled(whole?, kind) {
        None => Some(Table::new()),
        Some(Value::Table(part)) => Some(part),
        Some(_) => None,
    };
    let (Some(mut both), Some(local)) = (part(full), part(sliding)) else {
        let problem = format!("rope_parameters is {}", found.shown());
        return Err(Error::value(format!("{problem}; it must be an object with '{full}' and '{sliding}'")));
    };
    let plain = |name: &str, value: &Value| match name {
        "rope_theta" => true,
        "rope_type" | "type" => matches!(value, Value::None) || value.as_text() == Some("default"),
        _ => matches!(value, Value::None),
    };
    if let Some((name, value)) = local.iter().find(|(name, value)| !plain(name, value)) {
        let problem = format!("{name} of '{sliding}' is {}", value.shown());
        return Err(Error::value(format!("{problem}; this engine has plain angles there")));
    }
    let scaled = rope_options(|name| values.get(name).filter(|_| name == "rope_scaling").map(Cow::Borrowed))?;
    for (name, value) in scaled.iter() {
        both.set(name, value.clone());
    }
    let mut changed = values.clone();
    changed.set("rope_parameters", Value::Table(both));
    changed.set("rope_scaling", Value::None);
    Ok((Cow::Owned(changed), Given::of_table(&local).number("rope_theta", Some(base))?))
}

fn rope_from_folder(values: &Given<'_>, family: &Family, head_dim: usize, context: usize) -> Result<Rope> {
    let usual = family.yarn.map_or_else(Table::new, |(factor, original)| {
        Table::from([
            ("rope_type", "yarn".into()),
            ("factor", factor.into()),
            ("truncate", false.into()),
            ("original_max_position_embeddings", original.into()),
        ])
    });
    let found = rope_options(|name| values.get(name).map(Cow::Owned))?;
    let table = if found.is_empty() { &usual } else { &found };
    let given = Given::of_table(table);
    let found = table.get("rope_type").or_else(|| table.get("type")).cloned().unwrap_or("default".into());
    // What Phi-3's first releases called it.
    let early = family.original_context.is_some() && matches!(found.as_text(), Some("su" | "yarn"));
    let found = if early { "longrope".into() } else { found };
    let base = given.number("rope_theta", Some(values.number("rope_theta", Some(family.rope_base))?))?;
    let Some((kind, options)) = SCALINGS.iter().find(|(name, _)| found.as_text() == Some(name)) else {
        let names = SCALINGS.map(|(name, _)| format!("'{name}'")).join(", ");
        return Err(Error::value(format!("rotary embedding of type {}; this engine has {names}", found.shown())));
    };
    let unknown =
        table.iter().find(|(name, value)| !ROPE.contains(name) && !options.contains(name) && **value != Value::None);
    if let Some((name, _)) = unknown {
        let problem = format!("the rotary embedding of type '{kind}' has the option {}", quoted(name));
        return Err(Error::value(format!("{problem}, which is unknown here")));
    }
    if head_dim > MOST_HEAD_DIM {
        // There is a divisor for every pair of it.
        return Err(refuse("head_dim", &head_dim.into(), "a multiple of 8, at most 256"));
    }
    let part = rotated(values, &given, family, head_dim)?;
    let rotated = if part == head_dim { 0 } else { part };
    let of = |scaling| Ok(Rope { base, layout: RopeLayout::Half, rotated, scaling });
    let factor = |usual| given.number("factor", usual);
    let original = match family.original_context {
        Some(usual) => values.number("original_max_position_embeddings", Some(usual))?,
        None => given.number("original_max_position_embeddings", Some(context as f64))?,
    };
    match *kind {
        "default" => return of(Scaling::None),
        "linear" => return of(Scaling::Linear { factor: factor(None)? }),
        "dynamic" => return of(Scaling::Dynamic { factor: factor(None)? }),
        "llama3" => return of(Scaling::Llama3(llama3(&given, base, head_dim, original)?)),
        _ => {}
    }
    if base <= 1.0 || !(1.0 < original && original <= 1e9) {
        return Err(Error::value(format!(
            "rotary embedding of {kind} with base {base:?} and original_max_position_embeddings {original:?}: they must be \
             above 1, the latter at most 1e9"
        )));
    }
    if *kind == "yarn" {
        return of(Scaling::Yarn(yarn(&given, base, part, original)?));
    }
    let factor = factor(Some(context as f64 / original))?;
    of(Scaling::LongRope(Divided {
        factor,
        magnitude: given.number("attention_factor", Some(longrope_magnitude(factor, original)))?,
        divisors: given.numbers("short_factor", 128)?,
        long_divisors: given.numbers("long_factor", 128)?,
        original_context: original as usize,
    }))
}

/// How many elements of a head are rotated.
fn rotated(values: &Given<'_>, given: &Given<'_>, family: &Family, head_dim: usize) -> Result<usize> {
    let name = "partial_rotary_factor";
    let Some(value) = given.get(name).or_else(|| values.get(name)).filter(|value| value.as_number() != Some(1.0))
    else {
        return Ok(head_dim);
    };
    if !family.partial_rotary {
        let problem = format!("partial_rotary_factor is {}; this engine rotates whole heads", value.shown());
        return Err(Error::value(problem));
    }
    let share = value.as_number().filter(|share| 0.0 < *share && *share < 1.0);
    let part = share.map_or(0, |share| (head_dim as f64 * share) as usize);
    if part < 2 || !part.is_multiple_of(2) {
        let problem = format!("partial_rotary_factor is {}; of {head_dim} elements", value.shown());
        return Err(Error::value(format!("{problem} it must leave an even number")));
    }
    Ok(part)
}

fn llama3(given: &Given<'_>, base: f64, head_dim: usize, original: f64) -> Result<Divided> {
    let (low, high) = (given.number("low_freq_factor", None)?, given.number("high_freq_factor", None)?);
    let factor = given.number("factor", None)?;
    if base < 1.0 || factor < 1.0 || !(0.0 < low && low < high) || original < 1.0 {
        return Err(Error::value(format!(
            "rotary embedding of llama3 with base {base:?}, factor {factor:?}, low_freq_factor {low:?}, high_freq_factor \
             {high:?} and original_max_position_embeddings {original:?}: they must be above 0, the base, the factor and the \
             context at least 1, low below high"
        )));
    }
    Ok(Divided::by(factor, llama3_divisors(base, head_dim, factor, [low, high], original)))
}

fn yarn(given: &Given<'_>, base: f64, part: usize, original: f64) -> Result<Divided> {
    let or =
        |name: &str, usual: f64| given.number(name, Some(usual)).map(|found| if found == 0.0 { usual } else { found });
    let (factor, fast, slow) = (given.number("factor", None)?, or("beta_fast", 32.0)?, or("beta_slow", 1.0)?);
    let (weight, all_dims) = (given.number("mscale", Some(0.0))?, given.number("mscale_all_dim", Some(0.0))?);
    let within = |value: f64, least: f64, most: f64| (least..=most).contains(&value);
    let betas = within(slow, 1e-3, fast) && fast <= 1e6;
    if !(within(factor, 1.0, 1e6) && betas && within(weight, 0.0, 100.0) && within(all_dims, 0.0, 100.0)) {
        return Err(Error::value(format!(
            "rotary embedding of yarn with factor {factor:?}, beta_fast {fast:?}, beta_slow {slow:?}, mscale {weight:?} and \
             mscale_all_dim {all_dims:?}: the factor must be 1 to 1e6, the betas 0.001 to 1e6 and not below each other, the \
             mscales 0 to 100"
        )));
    }
    let usual = if weight != 0.0 && all_dims != 0.0 {
        rounded(yarn_magnitude(factor, weight) / yarn_magnitude(factor, all_dims))
    } else {
        rounded(yarn_magnitude(factor, 1.0))
    };
    let truncate = given.flag("truncate", true)?;
    Ok(Divided {
        magnitude: given.number("attention_factor", Some(usual))?,
        original_context: original as usize,
        ..Divided::by(factor, yarn_divisors(base, part, factor, [fast, slow], original, truncate))
    })
}
