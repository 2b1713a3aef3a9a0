//! What the text of a model must be where calls of tools are enforced, as a grammar of llguidance.
//!
//! Calls are written as chat templates write those of earlier turns, to the space. The arguments of each function are a
//! grammar of their own, so that references in a schema lead where they led.
//! (<https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md>)

use std::collections::HashMap;

use nn_core::format::{Table, Value, write_json};
use nn_core::infer::{NO_FORCING, SPACES};

use super::tool_calls::CallForm;
use super::tools::{Choice, Tool, Tools};

/// The grammar of texts with calls. `marks` are those texts of the form that are control tokens.
///
/// Where a call is required, the text is nothing else. Where the choice is the model's, the text is free up to what begins a
/// call.
pub(super) fn call_grammar(tools: &Tools, form: &CallForm, marks: &HashMap<&str, i32>) -> String {
    let functions = tools.callable();
    let items: Vec<String> = (0..functions.len()).map(|number| format!("item{number}")).collect();
    let mut lark = format!("{NO_FORCING}{}\nitem: {}\n", start(tools, form, marks), items.join(" | "));
    let mut grammars = Vec::new();
    for (number, tool) in functions.iter().enumerate() {
        let head = text(&format!(r#"{{"name": "{}", "{}": "#, tool.name, form.arguments));
        lark += &format!("item{number}: {head} @arguments{number} \"}}\"\n");
        let schema = arguments_schema(tool, tools.enforces(tool));
        let name = format!("arguments{number}");
        grammars.push(Table::from([("name", name.into()), ("json_schema", schema.into())]).into());
    }
    grammars.insert(0, Table::from([("name", "calls".into()), ("lark_grammar", lark.into())]).into());
    schema_grammar(grammars)
}

/// Grammars as llguidance takes them; the first one is that of the text.
fn schema_grammar(grammars: Vec<Value>) -> String {
    write_json(&Table::from([("grammars", grammars.into())]).into())
}

/// The schema of a function's arguments: its own where that is enforced, otherwise that of any object.
pub(super) fn arguments_schema(tool: &Tool, enforced: bool) -> Table {
    let mut schema = Table::from([("type", "object".into())]);
    match &tool.parameters {
        _ if !enforced => {}
        None => {
            schema.set("properties", Table::new());
            schema.set("additionalProperties", false);
        }
        Some(parameters) => {
            let all = schema.iter().chain(parameters.iter());
            schema = all.map(|(name, value)| (name.to_owned(), value.clone())).collect();
        }
    }
    schema.set("x-guidance", Table::from([("whitespace_pattern", SPACES.into())]));
    schema
}

/// The first rules: where calls stand in the text.
fn start(tools: &Tools, form: &CallForm, marks: &HashMap<&str, i32>) -> String {
    let mark = |name: &str| marks.get(name).map_or_else(|| text(name), |token| format!("<[{token}]>"));
    let between = if form.listed { ", " } else { "; " };
    let items = if tools.parallel { format!("item ({} item)*", text(between)) } else { "item".to_owned() };
    let block = if form.listed {
        format!(r#""[" {items} "]""#)
    } else if form.end.is_empty() {
        items
    } else {
        format!(r#""\n" item "\n" {}"#, mark(&form.end))
    };
    if tools.choice != Choice::Auto {
        let start = if form.bare { "block".to_owned() } else { format!("{} block", mark(&form.begin)) };
        let several = tools.parallel && !form.listed && !form.end.is_empty();
        let again = if several { format!(r#" ("\n" {start})*"#) } else { String::new() };
        return format!("start: {start}{again}\nblock: {block}");
    }
    let (start, words) = match (form.bare, tools.parallel) {
        (true, _) => ("block | begun | WORDS", r"/[ \n\r\t]*([^{ \n\r\t](.|\n)*)?/"),
        (false, true) => ("begun* WORDS", r"/(.|\n)*/"),
        (false, false) => ("begun? WORDS", r"/(.|\n)*/"),
    };
    let begin = mark(&form.begin);
    let begun = if marks.contains_key(form.begin.as_str()) {
        format!("begun: WORDS {begin} block")
    } else {
        format!("begun: begin block\nbegin[lazy]: WORDS {begin}") // the first place where it stands begins a call
    };
    format!("start: {start}\nblock: {block}\n{begun}\nWORDS: {words}")
}

/// A text as the grammar has it.
fn text(text: &str) -> String {
    write_json(&text.into())
}

#[cfg(test)]
mod tests {
    use nn_core::format::parse_json;

    use super::*;
    use crate::serve::api::API;
    use crate::serve::fields::Checker;

    #[test]
    fn grammars_are_those_of_python() {
        let Ok(Value::List(cases)) = parse_json(include_bytes!("../../../../tests/serve/call_grammars.json")) else {
            panic!("it is a list")
        };
        let tables: Vec<&Table> = cases.iter().filter_map(Value::as_table).collect();
        for case in &tables[1..] {
            let mut body = Table::from([("messages", Value::List(vec![Value::None]))]);
            body.set("tools", tables[0].get("tools").cloned());
            for name in ["tool_choice", "parallel_tool_calls"] {
                body.set(name, case.get(name).cloned());
            }
            let values = Checker::new("chat", "/x").check(&body).unwrap();
            let tools = Tools::requested(&values, "response_format", None, false).unwrap().unwrap();
            let form = API.call_forms.iter().find(|form| case.get("form").and_then(Value::as_text) == Some(&form.name));
            let marks = case.get("marks").and_then(Value::as_table).unwrap();
            let marks = marks.iter().map(|(name, token)| (name, token.as_integer().unwrap())).collect();
            let grammar = call_grammar(&tools, form.unwrap(), &marks);
            assert_eq!(Some(grammar.as_str()), case.get("grammar").and_then(Value::as_text));
        }
    }
}
