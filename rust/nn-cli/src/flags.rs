//! Flags and TOML files for the options of models and training, and the flags that commands share.
//!
//! The option structs of `nn_core` are the one list of options: names, types and help come from them.

use std::env;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use nn_core::format::{Table, TomlFile, Value};
use nn_core::model::{self, MoEConfig, PRESETS, Precision, USUAL_PRESET};
use nn_core::options::{Kind, OptionSpec, unknown};
use nn_core::train::{self, Origin, TrainConfig, open_shards};
use nn_core::{Error, Result};
use nn_ffi::{Context, Device, InstructionSet};

use crate::paths;

const TABLES: [(&str, &[OptionSpec]); 2] = [("model", MoEConfig::OPTIONS), ("train", TrainConfig::OPTIONS)];

/// Where to compute.
#[derive(Args, Debug)]
#[allow(rustdoc::broken_intra_doc_links, reason = "this is the command's help, where brackets are brackets")]
pub(crate) struct DeviceFlags {
    /// cpu, cuda, cuda:INDEX, or auto: a GPU if there is one.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Number of worker threads; it does not affect results.  [default: all cores]
    #[arg(long, value_name = "INTEGER", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
}

impl DeviceFlags {
    pub(crate) fn new(device: &str, threads: Option<u16>) -> Self {
        Self { device: device.to_owned(), threads }
    }

    pub(crate) fn open(&self) -> Result<Context> {
        let device: Device = self.device.parse()?;
        Ok(Context::open(device, self.threads.map(usize::from), None)?)
    }

    /// As `open`; but a GPU without a number is the one that a launcher such as torchrun has for this rank.
    pub(crate) fn open_local(&self) -> Result<Context> {
        match env::var("LOCAL_RANK") {
            Ok(local) if self.device == "cuda" => Self::new(&format!("cuda:{local}"), self.threads).open(),
            _ => self.open(),
        }
    }

    /// The CPU, with as many threads, and the widest instruction set that it has unless one is given.
    pub(crate) fn open_cpu(&self, isa: Option<InstructionSet>) -> Result<Context> {
        Ok(Context::open(Device::Cpu, self.threads.map(usize::from), isa)?)
    }
}

/// Where options come from that no flag gives.
#[derive(Args, Debug)]
#[allow(rustdoc::broken_intra_doc_links, reason = "this is the command's help, where brackets are brackets")]
pub(crate) struct ConfigSource {
    /// A TOML file.
    #[arg(long, value_name = "FILE", value_parser = paths::file)]
    pub(crate) config: Option<PathBuf>,
    /// Preset to start from: sizes, and training options that fit them.  [default: small]
    #[arg(long, value_parser = PRESETS)]
    pub(crate) preset: Option<String>,
}

impl ConfigSource {
    /// The file; an empty one where none was given.
    pub(crate) fn file(&self) -> Result<ConfigFile> {
        Ok(self.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default())
    }

    /// The vocabulary of the data where there are some, else that of the preset.
    pub(crate) fn vocabulary(&self, data: Option<&Path>, file: &ConfigFile) -> Result<u64> {
        match data.map(Path::to_owned).or_else(|| file.data_path()) {
            Some(data) => Ok(open_shards(&data)?[0].vocab_size()),
            None => self.preset_vocabulary(file),
        }
    }

    /// That of the preset; of the default one if there is no such preset, which is refused later.
    pub(crate) fn preset_vocabulary(&self, file: &ConfigFile) -> Result<u64> {
        let named = self.preset.clone().or_else(|| file.preset());
        let sizes = named.and_then(|name| MoEConfig::preset(&name).ok());
        Ok(sizes.map_or_else(|| MoEConfig::preset(USUAL_PRESET), Ok)?.vocab_size as u64)
    }
}

/// One of the precisions, by its name.
pub(crate) fn precision() -> impl TypedValueParser<Value = Precision> {
    PossibleValuesParser::new(Precision::NAMES).try_map(|name| name.parse::<Precision>())
}

/// The options of the model and of training that were given as flags, by table.
#[derive(Debug, Default)]
pub(crate) struct ConfigFlags {
    given: Vec<(&'static str, &'static str, Value)>,
}

impl ConfigFlags {
    /// The names of those that were given, in the order of the help.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.given.iter().map(|(_, name, _)| *name)
    }

    /// The options of training that were given.
    pub(crate) fn of_training(&self) -> Table {
        let given = self.given.iter().filter(|(table, _, _)| *table == "train");
        given.map(|(_, name, value)| ((*name).to_owned(), value.clone())).collect()
    }
}

impl ConfigFlags {
    /// Takes the value of a flag away.
    pub(crate) fn take(&mut self, option: &str) -> Option<Value> {
        let at = self.given.iter().position(|(_, name, _)| *name == option)?;
        Some(self.given.remove(at).2)
    }

    /// Gives a flag a value unless it has one.
    pub(crate) fn set_default(&mut self, table: &'static str, option: &'static str, value: Value) {
        if self.given.iter().all(|(_, name, _)| *name != option) {
            self.given.push((table, option, value));
        }
    }
}

impl Args for ConfigFlags {
    fn augment_args(mut command: Command) -> Command {
        for (table, options) in TABLES {
            for option in options {
                for argument in arguments(table, option) {
                    command = command.arg(argument);
                }
            }
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ConfigFlags {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let mut flags = Self::default();
        for (table, options) in TABLES {
            for option in options {
                let value = if option.kind == Kind::Flag {
                    [(option.name, true), (negated(option.name), false)]
                        .into_iter()
                        .find(|(id, _)| matches.get_flag(id))
                        .map(|(_, value)| Value::Bool(value))
                } else {
                    matches.get_one::<Value>(option.name).cloned()
                };
                flags.given.extend(value.map(|value| (table, option.name, value)));
            }
        }
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What an option is without its flag, as the help says it.
fn default_text(table: &str, name: &str) -> Result<String> {
    if name == "vocab_size" {
        return Ok("that of the data, else the preset's".into());
    }
    let value = |preset: &str| {
        let values = match table {
            "model" => MoEConfig::preset(preset)?.values(),
            _ => TrainConfig::preset(preset)?.values(),
        };
        Ok(values.get(name).cloned().unwrap_or(Value::None))
    };
    let usual = value(USUAL_PRESET)?;
    let text = match &usual {
        Value::None => "none".into(),
        Value::Bool(true) => "on".into(),
        Value::Bool(false) => "off".into(),
        Value::Text(word) => word.clone(),
        number => number.shown(),
    };
    let of_all = PRESETS.into_iter().map(value).collect::<Result<Vec<_>>>()?;
    let differs = of_all.iter().any(|value| *value != usual);
    Ok(if differs { format!("the preset's; {USUAL_PRESET}: {text}") } else { text })
}

/// The identifier of the flag that turns an option off.
fn negated(name: &'static str) -> &'static str {
    match name {
        "norm_topk_prob" => "no_norm_topk_prob",
        "recompute_experts" => "no_recompute_experts",
        "qkv_bias" => "no_qkv_bias",
        "qk_norm" => "no_qk_norm",
        "tie_embeddings" => "no_tie_embeddings",
        "ternary" => "no_ternary",
        "squared_relu" => "no_squared_relu",
        other => other,
    }
}

fn arguments(table: &str, option: &'static OptionSpec) -> Vec<Arg> {
    let default = default_text(table, option.name).unwrap_or_else(|error| error.to_string());
    let help = format!("[{table}] {}  [default: {default}]", option.help);
    let long = |id: &str| id.replace('_', "-");
    let name = option.name;
    if option.kind == Kind::Flag {
        let off = negated(name);
        let on = Arg::new(name).long(long(name)).action(ArgAction::SetTrue).overrides_with(off).help(help);
        let opposite = format!("The opposite of --{}", long(name));
        return vec![on, Arg::new(off).long(long(off)).action(ArgAction::SetTrue).overrides_with(name).help(opposite)];
    }
    let argument = Arg::new(name).long(long(name)).help(help).allow_negative_numbers(true);
    vec![match option.kind {
        Kind::Whole => argument.value_name("INTEGER").value_parser(whole),
        Kind::WholeOrNone => argument.value_name("INTEGER|NONE").value_parser(|text: &str| or_none(text, whole)),
        Kind::NumberOrNone => argument.value_name("FLOAT|NONE").value_parser(|text: &str| or_none(text, number)),
        Kind::Choice(words) => {
            argument.value_name("NAME").value_parser(PossibleValuesParser::new(words).map(Value::from))
        }
        Kind::Text => argument.value_name("TEXT").value_parser(|text: &str| Ok::<_, String>(Value::from(text))),
        Kind::Number | Kind::Flag => argument.value_name("FLOAT").value_parser(number),
    }]
}

fn whole(text: &str) -> std::result::Result<Value, String> {
    text.parse().map(Value::Integer).map_err(|_| format!("'{text}' is not a whole number"))
}

fn number(text: &str) -> std::result::Result<Value, String> {
    text.parse().map(Value::Float).map_err(|_| format!("'{text}' is not a number"))
}

fn or_none(
    text: &str,
    read: impl Fn(&str) -> std::result::Result<Value, String>,
) -> std::result::Result<Value, String> {
    if text.eq_ignore_ascii_case("none") {
        return Ok(Value::None);
    }
    read(text).map_err(|_| format!("'{text}' is neither a number nor 'none'"))
}

/// A TOML file with the tables `[model]` (with `preset` if wanted), `[train]` and `[data]`; the string "none" is none.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile(TomlFile);

impl ConfigFile {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = TomlFile::read(path)?;
        for (name, table) in file.tables().iter() {
            if !matches!((name, table), ("model" | "train" | "data", Value::Table(_))) {
                let shown = Value::from(name).shown();
                let problem = format!("has {shown}; it may have the tables [model], [train] and [data]");
                return Err(file.wrong(&problem, name, ""));
            }
        }
        Ok(Self(file))
    }

    fn table(&self, name: &str) -> Table {
        self.0.table(name)
    }

    /// Refuses what is not an option of its table.
    fn check_names(&self) -> Result<()> {
        let [model, train] = TABLES;
        let has = |options: &[OptionSpec], name: &str| options.iter().any(|spec| spec.name == name);
        for (kind, (table, options), (other, others)) in [("model", model, train), ("training", train, model)] {
            for (name, _) in self.table(table).iter() {
                if has(options, name) || (table, name) == ("model", "preset") {
                    continue;
                }
                let problem = if has(others, name) {
                    format!("there is no {kind} option '{name}'; it belongs under [{other}]")
                } else {
                    unknown(kind, name, options).to_string()
                };
                return Err(self.0.wrong(&problem, table, name));
            }
        }
        Ok(())
    }

    /// The error of options, with the line where the one that it begins with is of `table` here and no flag says
    /// otherwise; else as it is.
    fn wrong_value(&self, error: Error, table: &str, flags: &ConfigFlags) -> Error {
        let problem = error.to_string();
        let name = problem.split(' ').next().unwrap_or_default();
        if !self.has(table, name) || flags.names().any(|given| given == name) {
            return error;
        }
        self.0.wrong(&problem, table, name)
    }

    /// The preset that it begins with, if it is a text.
    pub(crate) fn preset(&self) -> Option<String> {
        self.table("model").get("preset").and_then(Value::as_text).map(str::to_owned)
    }

    /// The paths under `[data]`, relative to the file: data, held-out data and tokenizer.
    pub(crate) fn data(&self) -> Result<[Option<PathBuf>; 3]> {
        const NAMES: [&str; 3] = ["data", "held_out", "tokenizer"];
        let table = self.table("data");
        for (name, value) in table.iter() {
            if !NAMES.contains(&name) || value.as_text().is_none() {
                let shown = Value::from(name).shown();
                let problem = format!("[data] has {shown}; it may have data, held_out and tokenizer, as text");
                return Err(self.0.wrong(&problem, "data", name));
            }
        }
        let folder = self.0.path().parent().unwrap_or(Path::new(""));
        Ok(NAMES.map(|name| Some(folder.join(table.get(name)?.as_text()?))))
    }

    /// Whether one of the tables has this entry.
    pub(crate) fn has(&self, table: &str, name: &str) -> bool {
        self.table(table).get(name).is_some()
    }

    /// The data under `[data]`, relative to the file.
    pub(crate) fn data_path(&self) -> Option<PathBuf> {
        let folder = self.0.path().parent().unwrap_or(Path::new(""));
        self.table("data").get("data").and_then(Value::as_text).map(|data| folder.join(data))
    }

    /// Options from a preset with the data's vocabulary, over them this file's, over them the flags that were given.
    pub(crate) fn options(
        &self,
        preset_flag: Option<&str>,
        flags: &ConfigFlags,
        vocab_size: u64,
    ) -> Result<(MoEConfig, TrainConfig)> {
        let (of_file, tables) = self.given(flags)?;
        let of_flag = preset_flag.is_some();
        let chosen = preset_flag.map(Value::from).or(of_file);
        let chosen = match chosen {
            None | Some(Value::None) => USUAL_PRESET.to_owned(),
            Some(Value::Text(name)) => name,
            Some(other) => other.shown(),
        };
        let in_file = |error: Error| self.0.wrong(&error.to_string(), "model", "preset");
        let mut model = model::preset(&chosen).map_err(|error| if of_flag { error } else { in_file(error) })?;
        let mut train = train::preset(&chosen)?;
        model.set("vocab_size", vocab_size);
        for (options, given) in [&mut model, &mut train].into_iter().zip(&tables) {
            for (name, value) in given.iter() {
                options.set(name, value.clone());
            }
        }
        Ok((
            MoEConfig::from_table(&model).map_err(|error| self.wrong_value(error, "model", flags))?,
            TrainConfig::from_table(&train).map_err(|error| self.wrong_value(error, "train", flags))?,
        ))
    }

    /// Whether the options say that an adapter is trained: they are checked later.
    pub(crate) fn trains_adapter(&self, flags: &ConfigFlags) -> bool {
        let flag = flags.given.iter().find(|(_, name, _)| *name == "lora_rank").map(|(_, _, value)| value.clone());
        flag.or_else(|| self.table("train").get("lora_rank").cloned()).is_some_and(|rank| rank != Value::Integer(0))
    }

    /// Options of a run that begins at `origin`: the model's from there, those of training from this file, over them the
    /// flags that were given. What contradicts the origin is refused by name.
    pub(crate) fn options_from(&self, origin: Origin, flags: &ConfigFlags) -> Result<(Origin, TrainConfig)> {
        let (preset, [model, train]) = self.given(flags)?;
        if let Some(preset) = preset {
            let problem = format!("preset is {}, but --from gives the sizes of the model", preset.shown());
            return Err(self.0.wrong(&problem, "model", "preset"));
        }
        let origin = origin.with_options(&model).map_err(|error| self.wrong_value(error, "model", flags))?;
        let mut options = origin.defaults();
        for (name, value) in train.iter() {
            options.set(name, value.clone());
        }
        let options = TrainConfig::from_table(&options).and_then(|options| origin.check(&options).map(|()| options));
        Ok((origin, options.map_err(|error| self.wrong_value(error, "train", flags))?))
    }

    /// The preset that this file begins with, and by table its options and, over them, those of the flags.
    fn given(&self, flags: &ConfigFlags) -> Result<(Option<Value>, [Table; 2])> {
        let mut tables = TABLES.map(|(name, _)| self.table(name));
        let preset = tables[0].remove("preset");
        self.check_names()?;
        for (table, (name, _)) in tables.iter_mut().zip(TABLES) {
            for (_, option, value) in flags.given.iter().filter(|(of, _, _)| *of == name) {
                table.set(*option, value.clone());
            }
        }
        let none = |value: &Value| if value.as_text() == Some("none") { Value::None } else { value.clone() };
        let tables = tables.map(|table| table.iter().map(|(name, value)| (name.to_owned(), none(value))).collect());
        Ok((preset, tables))
    }
}
