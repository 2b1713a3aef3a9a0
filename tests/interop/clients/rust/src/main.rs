//! Says what async-openai finds at an address, as one line of JSON.

use std::error::Error;

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::types::chat::{
    ChatCompletionRequestMessage, ChatCompletionRequestSystemMessageArgs,
    ChatCompletionRequestUserMessageArgs, ChatCompletionStreamOptions, CreateChatCompletionRequest,
    CreateChatCompletionRequestArgs,
};
use async_openai::types::completions::{CreateCompletionRequest, CreateCompletionRequestArgs};
use futures::StreamExt;
use serde_json::{Value, json};

type Found = Result<Value, Box<dyn Error>>;

fn completion() -> Result<CreateCompletionRequest, OpenAIError> {
    let mut asked = CreateCompletionRequestArgs::default();
    asked
        .model("small")
        .prompt("the sea")
        .max_tokens(12_u32)
        .temperature(0.8)
        .seed(3_i64)
        .build()
}

#[allow(deprecated, reason = "the server knows seed")]
fn chat() -> Result<CreateChatCompletionRequest, OpenAIError> {
    let messages: [ChatCompletionRequestMessage; 2] = [
        ChatCompletionRequestSystemMessageArgs::default()
            .content("sail")
            .build()?
            .into(),
        ChatCompletionRequestUserMessageArgs::default()
            .content("the wide sea")
            .build()?
            .into(),
    ];
    let mut asked = CreateChatCompletionRequestArgs::default();
    asked
        .model("small")
        .messages(messages)
        .max_completion_tokens(10_u32)
        .temperature(0.9)
        .seed(5_i64)
        .build()
}

/// As the server spelt it: f64 would say more digits.
fn spelt(number: f32) -> Value {
    number
        .to_string()
        .parse()
        .map_or(Value::Null, |number: f64| json!(number))
}

/// Status, field and code of an error of the server.
fn refusal<T>(answer: Result<T, OpenAIError>) -> Value {
    match answer {
        Err(OpenAIError::ApiError(refused)) => {
            json!([
                refused.status_code.as_u16(),
                refused.api_error.param,
                refused.api_error.code
            ])
        }
        Err(other) => json!(other.to_string()),
        Ok(_) => Value::Null,
    }
}

async fn models(client: &Client<OpenAIConfig>) -> Found {
    let models = client.models().list().await?;
    Ok(models.data.iter().map(|model| model.id.clone()).collect())
}

async fn completion_stream(client: &Client<OpenAIConfig>) -> Found {
    let mut text = String::new();
    let mut parts = client.completions().create_stream(completion()?).await?;
    while let Some(part) = parts.next().await {
        text.extend(part?.choices.into_iter().map(|choice| choice.text));
    }
    Ok(text.into())
}

async fn chat_stream(client: &Client<OpenAIConfig>) -> Found {
    let (mut text, mut finish, mut total) = (String::new(), Value::Null, 0);
    let usage = ChatCompletionStreamOptions {
        include_usage: Some(true),
        include_obfuscation: None,
    };
    let asked = CreateChatCompletionRequest {
        stream_options: Some(usage),
        ..chat()?
    };
    let mut chunks = client.chat().create_stream(asked).await?;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        total = chunk.usage.map_or(total, |usage| usage.total_tokens);
        for choice in chunk.choices {
            text += &choice.delta.content.unwrap_or_default();
            finish = choice.finish_reason.map_or(finish, |reason| json!(reason));
        }
    }
    Ok(json!([text, finish, total]))
}

async fn look(client: &Client<OpenAIConfig>) -> Found {
    let whole = CreateCompletionRequest {
        n: Some(2),
        logprobs: Some(1),
        ..completion()?
    };
    let whole = client.completions().create(whole).await?;
    let usage = whole
        .usage
        .as_ref()
        .map(|usage| [usage.prompt_tokens, usage.completion_tokens]);
    let texts: Vec<Value> = whole
        .choices
        .iter()
        .map(|one| json!([one.text, one.finish_reason]))
        .collect();

    let scored = whole.choices[0]
        .logprobs
        .as_ref()
        .ok_or("no log-probabilities")?;
    let logprobs: Vec<Value> = scored
        .token_logprobs
        .iter()
        .map(|one| one.map_or(Value::Null, spelt))
        .collect();

    let asked = CreateChatCompletionRequest {
        logprobs: Some(true),
        top_logprobs: Some(2),
        ..chat()?
    };
    let answer = client.chat().create(asked).await?;
    let choice = &answer.choices[0];
    let scored = choice
        .logprobs
        .as_ref()
        .and_then(|found| found.content.as_ref())
        .ok_or("no log-probabilities")?;
    let top: Vec<Value> = scored[0]
        .top_logprobs
        .iter()
        .map(|one| spelt(one.logprob))
        .collect();

    let hot = client
        .completions()
        .create(CreateCompletionRequest {
            temperature: Some(5.0),
            ..completion()?
        })
        .await;
    let empty = client
        .chat()
        .create(CreateChatCompletionRequest {
            messages: Vec::new(),
            ..chat()?
        })
        .await;
    let other = client
        .chat()
        .create(CreateChatCompletionRequest {
            model: "other".into(),
            ..chat()?
        })
        .await;
    Ok(json!({
        "models": models(client).await?,
        "model": client.models().retrieve("small").await?.owned_by,
        "completion": texts,
        "logprobs": logprobs,
        "usage": usage,
        "completion_stream": completion_stream(client).await?,
        "chat": [choice.message.content, choice.finish_reason],
        "top": top,
        "chat_stream": chat_stream(client).await?,
        "refused": [refusal(hot), refusal(empty), refusal(other)],
    }))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("ADDRESS is missing")?;
    let client = Client::with_config(
        OpenAIConfig::new()
            .with_api_base(address)
            .with_api_key("none"),
    );
    println!("{}", look(&client).await?);
    Ok(())
}
