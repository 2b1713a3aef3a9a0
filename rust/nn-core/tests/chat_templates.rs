//! Chat templates give what Python's give: the fixtures of `tests/tokenizer/chat`. What one may not do is refused in time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nn_core::format::{Table, Value as Held, parse_json};
use nn_core::tokenizer::gguf::{Metadata, MetadataValue};
use nn_core::tokenizer::{ChatTemplate, Encoding, Rendering, TextTokenizer, Tokenizer};
use serde_json::{Value, json};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tokenizer")
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn template(text: &str) -> ChatTemplate {
    ChatTemplate::new(Some(text.to_owned()), "model", "<s>", "</s>").unwrap()
}

/// What a template writes for one message of a user.
fn written(text: &str) -> Result<String, String> {
    let messages = [json!({"role": "user", "content": "Hi"})];
    template(text).render(&messages, &Rendering::default()).map_err(|error| error.to_string())
}

#[test]
fn renders_as_python() {
    // Not by serde_json, which sorts the entries of objects: their order is part of what a template writes.
    let conversations = fs::read(fixtures().join("chat/conversations.json")).unwrap();
    let Ok(Held::List(conversations)) = parse_json(&conversations) else { panic!("it is no list") };
    let mut wrong = BTreeMap::new();
    let mut count = 0;
    for entry in fs::read_dir(fixtures().join("chat")).unwrap() {
        let path = entry.unwrap().path();
        let fixture = read(&path);
        let Some(text) = fixture["template"].as_str() else { continue };
        let made = template(text);
        for case in &conversations {
            let case = case.as_table().unwrap();
            let name = case.get("name").and_then(Held::as_text).unwrap();
            let mut variables = case.get("variables").and_then(Held::as_table).unwrap().clone();
            let prompt = variables.remove("add_generation_prompt").unwrap_or(true.into());
            let how = Rendering { add_generation_prompt: prompt == Held::Bool(true), variables };
            let Some(Held::List(messages)) = case.get("messages") else { panic!("{name} has no messages") };
            let found = made.render(messages, &how).map_err(|error| error.to_string());
            let expected = &fixture["rendered"][name];
            let same = match &found {
                Ok(text) => expected["text"] == **text,
                Err(said) => match expected["refused"].as_str() {
                    Some(words) => *said == format!("model: the chat template fails: {words}"),
                    None => expected["fails"].is_string() && said.starts_with("model: the chat template fails: "),
                },
            };
            count += 1;
            if !same {
                wrong.insert(format!("{}, {name}", path.display()), (found, expected.clone()));
            }
        }
    }
    assert!(wrong.is_empty() && count >= 99, "{count} cases: {wrong:#?}");
}

#[test]
fn a_model_without_a_template_gets_a_plain_one() {
    let made = ChatTemplate::new(None, "model", "", "").unwrap();
    assert!(made.is_plain() && !template("x").is_plain());
    let messages = [
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": "Hi"}),
        json!({"role": "assistant", "content": "Yes?"}),
    ];
    let text = made.render(&messages, &Rendering::default()).unwrap();
    assert_eq!(text, "Be brief.\n\nUser: Hi\nAssistant: Yes?\nAssistant:");
}

#[test]
fn dates_are_formed_as_asked_for() {
    let year = written("{{ strftime_now('%Y') }}").unwrap();
    assert!(year.len() == 4 && year.starts_with("20"), "{year}");
    let date = written("{{ strftime_now('%d %b %Y|%A, %B|%Y-%m-%d|%H:%M:%S') }}").unwrap();
    let lengths: Vec<usize> = date.split('|').map(str::len).collect();
    assert!(lengths[0] == 11 && lengths[2..] == [10, 8], "{date}");
    assert!(written("{{ strftime_now('%') }}").unwrap_err().contains("the chat template fails: "));
}

#[test]
fn what_a_template_may_not_do_is_refused() {
    let doubled = "{% set x = namespace(a='ab') %}{% for i in range(60) %}{% set x.a = x.a + x.a %}{% endfor %}";
    let joined = doubled.replace("x.a + x.a", "x.a ~ x.a");
    // One list in itself, twice, again and again: it is small, and all it stands for is not.
    let shared = |end: &str| {
        let begin = "{% set x = namespace(a=['a'], b=['a']) %}{% for i in range(40) %}{% set x.a = [x.a, x.a] %}";
        format!("{begin}{{% set x.b = [x.b, x.b] %}}{{% endfor %}}{end}")
    };
    // What else may be done with it takes a process: see the tests of nncuda-rs.
    for end in ["{{ x.a }}", "{{ x.a | tojson }}", "{{ ','.join(x.a) }}", "{{ '{}'.format(x.a) }}", "{{ x.a | list }}"]
    {
        let start = Instant::now();
        assert!(written(&shared(end)).is_err(), "{end}");
        assert!(start.elapsed() < Duration::from_secs(10), "{end} took {:?}", start.elapsed());
    }
    let fuel = "takes too many steps, or too much memory";
    let parentheses = format!("{{{{ {}1{} }}}}", "(".repeat(5000), ")".repeat(5000));
    let blocks = "{% if 1 %}".repeat(5000) + &"{% endif %}".repeat(5000);
    let calls = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}";
    let loops = "{% for i in range(99999) %}".repeat(2) + &"{% endfor %}".repeat(2);
    let mut wrong = Vec::new();
    for (text, problem) in [
        ("{% for m in messages %}", "fails: syntax error: unexpected end of input"),
        ("{{ raise_exception('roles must\ttake turns') }}", "the chat template fails: roles must\\ttake turns"),
        ("{{ nothing.at.all }}", "undefined"),
        ("{{ 1 // 0 }}", "fails: "),
        ("{{ 'x' | no_such_filter }}", "no_such_filter"),
        ("{% include '/etc/passwd' %}", "fails: template not found"),
        ("{% import '/etc/passwd' as x %}", "fails: template not found"),
        ("{{ ''.__class__.__mro__ }}", "undefined"),
        ("{{ messages.append(1) }}", "fails: unknown method"),
        ("{% for i in range(1000000000) %}{% endfor %}", "fails: "),
        (&loops, fuel),
        (calls, fuel),
        ("{{ 9 ** (9 ** 9) }}", "fails: "),
        ("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "fails: invalid operation: recursion limit exceeded"),
        (&parentheses, "fails: syntax error: "),
        (&blocks, "fails: syntax error: "),
        ("{{ 'a' * 2000000000 }}", fuel),
        ("{{ ([0] * 2000000000) | length }}", "fails: "),
        ("{{ '%2000000000d' | format(1) }}", fuel),
        ("{{ '{:2000000000}'.format(1) }}", fuel),
        ("{{ ('{0}' * 99999).format('a' * 99999) }}", fuel),
        ("{{ '{}'.format([1]) }}", "str.format is not for a value of type sequence"),
        ("{{ ','.join([[1]]) }}", "str.join takes strings; part 0 is of type sequence"),
        ("{{ ('ab' * 9999).join(['a'] * 9999) | length }}", fuel),
        ("{{ 'a' | indent(2000000000) }}", ""),
        ("{{ [1] | tojson(indent=2000000000) }}", fuel),
        ("{{ ('a' * 99999) | replace('a', 'b' * 99999) }}", fuel),
        (
            "{% set x = namespace(a=[]) %}{% for i in range(999) %}{% set x.a = [x.a] %}{% endfor %}{{ x.a | tojson }}",
            "the value of tojson is nested too deeply",
        ),
        (doubled, fuel),
        (&joined, fuel),
        ("{% for i in range(9000) %}{{ 'a' * 9000 }}{% endfor %}", "writes more than 4194304 characters"),
        ("{% for i in range(70000) %}{{ 'ä' * 60 }}{% endfor %}", "writes more than 4194304 characters"),
    ] {
        let start = Instant::now();
        let said = written(text);
        assert!(start.elapsed() < Duration::from_secs(10), "{text} took {:?}", start.elapsed());
        let as_expected = match &said {
            Ok(_) => problem.is_empty(),
            Err(said) => said.contains(problem) && said.starts_with("model: the chat template "),
        };
        if !as_expected {
            wrong.push((text.to_owned(), said));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let long = ChatTemplate::new(Some("ä".repeat((1 << 20) + 1)), "model", "", "").map(drop).unwrap_err().to_string();
    assert_eq!(long, "model: the chat template has 1048577 characters; it may have at most 1048576");
}

#[test]
fn a_long_conversation_is_no_fault() {
    let content = "é\n".repeat(300_000);
    let messages = [json!({"role": "user", "content": content})];
    let text =
        template("{{ messages[0].content | trim | replace('x', 'y') }}\n").render(&messages, &Rendering::default());
    assert_eq!(text.unwrap(), content.trim());
    let turns = |role: &str| json!({"role": role, "content": "The cat sat on the mat."});
    let messages: Vec<Value> = (0..2000).flat_map(|_| [turns("user"), turns("assistant")]).collect();
    for name in ["instructions", "thoughts", "tools", "parts", "roles", "picked"] {
        let fixture = read(&fixtures().join(format!("chat/{name}.json")));
        let text = template(fixture["template"].as_str().unwrap()).render(&messages, &Rendering::default()).unwrap();
        assert!(text.len() > 4000 * 23, "{name}");
    }
}

#[test]
fn ids_begin_once() {
    let tokenizer: TextTokenizer = Tokenizer::load(fixtures().join("llama_bpe.model")).unwrap().into();
    let messages = [json!({"role": "user", "content": "a</s>"})];
    for text in ["{{ bos_token }}a{{ eos_token }}", "a{{ eos_token }}"] {
        let ids = template(text).ids(&tokenizer, &messages, &Rendering::default()).unwrap();
        assert!(ids[0] == 1 && ids.ends_with(&[2]) && !ids[1..].contains(&1), "{ids:?}");
    }
    let plain = ChatTemplate::new(None, "model", "<s>", "</s>").unwrap();
    let strangers = [json!({"role": "system", "content": "<s>"})];
    let ids = plain.ids(&tokenizer, &strangers, &Rendering::default()).unwrap();
    assert!(ids[0] == 1 && !ids[1..].contains(&1), "{ids:?}");
    assert!(!plain.ids(&tokenizer, &messages, &Rendering::default()).unwrap().contains(&2));
    assert_eq!(tokenizer.encode("</s>", Encoding { begin: true, special: true }).unwrap(), [1, 2]);
}

#[test]
fn where_folders_keep_their_template() {
    let folder = tempfile::tempdir().unwrap();
    let render = || -> Result<String, String> {
        let made = ChatTemplate::from_folder(folder.path()).map_err(|error| error.to_string())?;
        assert!(!made.is_plain());
        made.render::<Table>(&[], &Rendering::default()).map_err(|error| error.to_string())
    };
    assert!(ChatTemplate::from_folder(folder.path()).unwrap().is_plain());
    let path = folder.path().join("tokenizer_config.json");
    let write = |value: Value| fs::write(&path, value.to_string()).unwrap();
    write(
        json!({"bos_token": {"content": "<b>"}, "eos_token": "<e>", "chat_template": "{{ bos_token + eos_token }}1"}),
    );
    assert_eq!(render().unwrap(), "<b><e>1");
    let several = json!([{"name": "tool_use", "template": "2"}, {"name": "default", "template": "3"}]);
    write(json!({"chat_template": several}));
    assert_eq!(render().unwrap(), "3");
    for (value, problem) in [
        (json!([several[0]]), "has several chat templates, none of them named 'default'"),
        (json!(7), "chat_template is neither a string nor a list of named ones"),
        (json!([{"name": "default", "template": 7}]), "chat_template is neither a string nor a list of named ones"),
    ] {
        write(json!({"chat_template": value}));
        assert!(render().unwrap_err().ends_with(problem));
    }
    fs::write(folder.path().join("chat_template.jinja"), "4").unwrap();
    assert_eq!(render().unwrap(), "4");
    fs::write(folder.path().join("chat_template.jinja"), b"a\xff").unwrap();
    assert!(render().unwrap_err().ends_with("chat_template.jinja: is not UTF-8 (at byte 1)"));
}

struct Entry(&'static str, MetadataValue<'static>);

impl Metadata for Entry {
    fn value(&self, key: &str) -> Option<MetadataValue<'_>> {
        (key == self.0).then(|| self.1.clone())
    }
}

#[test]
fn the_template_of_a_gguf_file() {
    let tokenizer: TextTokenizer = Tokenizer::load(fixtures().join("llama_bpe.model")).unwrap().into();
    let made = |value| ChatTemplate::from_gguf(&Entry("tokenizer.chat_template", value), &tokenizer, "m.gguf");
    let text = made(MetadataValue::Text("{{ bos_token }}")).unwrap().render::<Table>(&[], &Rendering::default());
    assert_eq!(text.unwrap(), "<s>");
    let said = made(MetadataValue::Whole(5)).map(drop).unwrap_err().to_string();
    assert_eq!(said, "m.gguf: tokenizer.chat_template is not a string");
    let none = Entry("general.architecture", MetadataValue::Text("llama"));
    assert!(ChatTemplate::from_gguf(&none, &tokenizer, "m.gguf").unwrap().is_plain());
}
