//! The routes of the server, and what a request goes through.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::{Extension, Path, Request, State};
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST};
use axum::http::{Method, StatusCode, Uri, Version};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, body::Body};
use nn_core::format::Table;
use nn_core::infer::LanguageModel;
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout_at;

use super::answers::Asked;
use super::api::{ApiError, cut};
use super::bodies::read_json_body;
use super::exchange::{Exchange, Peer, Tracked, decoded};
use super::guard::Guard;
use super::log;
use super::logprobs::TokenNames;
use super::metrics::{self, Metrics};
use super::names::Names;
use super::requests::Requests;
use super::texts::{Answer, Place};
use super::wire::Json;

const PAGE: &str = include_str!("page.html");
/// The route of one model, as metrics and errors name it.
const MODEL_ROUTE: &str = "/v1/models/{id:path}";

/// How a model is served.
#[derive(Debug)]
pub(super) struct Options {
    /// Of the model, as requests have it.
    pub(super) name: String,
    pub(super) keys: Vec<String>,
    /// Whether anyone may ask who can reach the address.
    pub(super) anyone: bool,
    /// Texts that may run and wait.
    pub(super) places: usize,
    /// Of a request, from its head to its last byte.
    pub(super) timeout: Duration,
    pub(super) page: bool,
}

/// How far the server is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Serving,
    /// No new requests; those that run go on.
    Draining,
    /// Those that run end with an error.
    Cut,
}

/// What all requests share.
#[derive(Debug)]
pub(super) struct App {
    model: LanguageModel,
    options: Options,
    guard: Guard,
    requests: Requests,
    models: Names,
    names: TokenNames,
    metrics: Metrics,
    created: u64,
    /// Texts that were submitted and have not ended.
    open: AtomicUsize,
    /// Requests that wait to become ids, or are becoming some.
    preparing: AtomicUsize,
    /// Long texts take a tokenizer long: they do so one after the other.
    tokenizing: Semaphore,
    failure: Mutex<Option<nn_core::Error>>,
    failed: AtomicBool,
    stage: watch::Sender<Stage>,
    ids: AtomicU64,
    seed: [u8; 32],
}

impl App {
    pub(super) fn new(model: LanguageModel, options: Options, seed: [u8; 32]) -> Self {
        let models = Names { model: options.name.clone(), adapters: model.adapters().to_vec() };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            guard: Guard::new(&options.keys, options.anyone),
            requests: Requests::new(model.clone(), models.clone(), options.places),
            models,
            names: TokenNames::new(model.clone()),
            metrics: Metrics::new(&options.name),
            created: now.as_secs(),
            open: AtomicUsize::new(0),
            preparing: AtomicUsize::new(0),
            tokenizing: Semaphore::new(1),
            failure: Mutex::default(),
            failed: AtomicBool::new(false),
            stage: watch::Sender::new(Stage::Serving),
            ids: AtomicU64::new(0),
            seed,
            model,
            options,
        }
    }

    /// The routes, as a service of axum.
    pub(super) fn router(self: &Arc<Self>) -> Router {
        let mut router = Router::new()
            .route("/health", get(health))
            .route("/health/live", get(live))
            .route("/health/ready", get(health))
            .route("/metrics", get(send_metrics))
            .route("/v1/models", get(models))
            .route("/v1/models/{*id}", get(one_model))
            .route("/v1/completions", post(completions))
            .route("/v1/chat/completions", post(chat))
            .route("/v1/responses", post(responses))
            .route("/v1/embeddings", post(embeddings))
            .route("/tokenize", post(tokenize))
            .route("/detokenize", post(detokenize))
            .route("/tokenizer_info", get(tokenizer_info));
        if self.options.page {
            router = router.route("/", get(page));
        }
        router
            .method_not_allowed_fallback(wrong_method)
            .fallback(nowhere)
            .layer(from_fn_with_state(Arc::clone(self), serve))
            .with_state(Arc::clone(self))
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(super) fn names(&self) -> &TokenNames {
        &self.names
    }

    pub(super) fn model(&self) -> &LanguageModel {
        &self.model
    }

    /// How far the server is on its way to its end, and what comes of it.
    pub(super) fn stage(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    /// Goes on to a later stage.
    pub(super) fn advance(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let later = stage > *now;
            *now = stage.max(*now);
            later
        });
    }

    /// Texts that run or wait.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// A text has ended, and its place is free.
    pub(super) fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// The device has failed: nothing more can be served.
    pub(super) fn fail(&self, error: nn_core::Error) -> ApiError {
        if !self.failed.swap(true, Ordering::Relaxed) {
            log::message("error", &format!("the engine failed: {error}"));
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            self.advance(Stage::Draining);
        }
        ApiError::new("engine_failed", &[])
    }

    /// What the device failed with, if it did.
    pub(super) fn failure(&self) -> Option<nn_core::Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A number for an answer that no other has.
    fn next_id(&self) -> u128 {
        let number = self.ids.fetch_add(1, Ordering::Relaxed);
        let digest: [u8; 32] =
            Sha256::new().chain_update(self.seed).chain_update(number.to_le_bytes()).finalize().into();
        digest[..16].iter().fold(0, |id, byte| id << 8 | u128::from(*byte))
    }

    /// Refuses so many texts that could not be submitted now.
    fn check_places(&self, count: usize) -> Result<(), ApiError> {
        if self.failed.load(Ordering::Relaxed) {
            return Err(ApiError::new("engine_failed", &[]));
        }
        if *self.stage.borrow() == Stage::Cut {
            return Err(ApiError::new("draining", &[]));
        }
        if self.open() + count > self.options.places {
            return Err(self.full());
        }
        Ok(())
    }

    fn full(&self) -> ApiError {
        ApiError::new("queue_full", &[("places", &self.options.places), ("seconds", &1)]).with("retry-after", "1")
    }

    /// Places for so many texts, or for none.
    fn enter(self: &Arc<Self>, count: usize) -> Result<Vec<Place>, ApiError> {
        self.check_places(count)?;
        let room = |open: usize| (open + count <= self.options.places).then_some(open + count);
        let taken = self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        taken.map_err(|_| self.full())?;
        Ok((0..count).map(|_| Place::new(Arc::clone(self))).collect())
    }

    /// What there is to say of the model, or of one of its adapters.
    fn described(&self, name: &str) -> Json {
        let mut found = vec![
            ("id".to_owned(), name.into()),
            ("object".to_owned(), "model".into()),
            ("created".to_owned(), Json::Integer(self.created)),
            ("owned_by".to_owned(), "nncuda".into()),
            ("max_model_len".to_owned(), self.model.context().into()),
        ];
        if name != self.models.model {
            found.push(("parent".to_owned(), self.models.model.as_str().into()));
        }
        Json::Object(found)
    }
}

/// What every request goes through: who may ask is asked, its time is bounded, and its line is written at its end.
async fn serve(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
    let exchange = Arc::new(Exchange::new(Arc::clone(&app), &request, peer, app.options.timeout));
    let nameless = request.version() == Version::HTTP_11 && !request.headers().contains_key(HOST);
    let allowed = if nameless {
        Err(ApiError::new("bad_http", &[]))
    } else {
        app.guard.check(request.uri().path(), request.headers())
    };
    let response = match allowed {
        Err(error) => error.into_response(),
        Ok(()) => {
            exchange.set_route(route_of(request.uri(), app.options.page));
            request.extensions_mut().insert(Arc::clone(&exchange));
            match timeout_at(exchange.deadline(), next.run(request)).await {
                Ok(response) => response,
                Err(_) => exchange.late().into_response(),
            }
        }
    };
    exchange.answered(&response);
    response.map(|body| Body::new(Tracked::new(body, exchange)))
}

/// The route of a path, as metrics and errors name it.
fn route_of(uri: &Uri, page: bool) -> &'static str {
    let path = uri.path();
    let routes = [
        "/health",
        "/health/live",
        "/health/ready",
        "/metrics",
        "/v1/models",
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/tokenize",
        "/detokenize",
        "/tokenizer_info",
    ];
    match routes.into_iter().find(|route| *route == path) {
        Some(route) => route,
        None if path.strip_prefix("/v1/models/").is_some_and(|id| !id.is_empty()) => MODEL_ROUTE,
        None if path == "/" && page => "/",
        None => "other",
    }
}

async fn nowhere(uri: Uri) -> ApiError {
    ApiError::new("route_not_found", &[("route", &cut(&decoded(uri.path())))])
}

async fn wrong_method(Extension(exchange): Extension<Arc<Exchange>>, method: Method) -> ApiError {
    let route = exchange.route();
    let posts = route.ends_with("tokenize") || route.starts_with("/v1/") && !route.starts_with("/v1/models");
    let shown: String = method.as_str().chars().take(32).collect();
    exchange.set_route("other");
    ApiError::new("method_not_allowed", &[("route", &route), ("method", &shown)])
        .with(ALLOW.as_str(), if posts { "POST" } else { "GET, HEAD" })
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, self.body());
        for (name, value) in &self.headers {
            if let Ok(value) = value.parse() {
                response.headers_mut().insert(*name, value);
            }
        }
        response.extensions_mut().insert(self);
        response
    }
}

fn json_response(status: u16, body: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

type Answered = Result<Response, ApiError>;

async fn health(State(app): State<Arc<App>>) -> Response {
    let live = !app.failed.load(Ordering::Relaxed);
    let ready = live && *app.stage.borrow() == Stage::Serving;
    let body = Json::object([("live", Json::Bool(live)), ("ready", Json::Bool(ready))]);
    json_response(if ready { 200 } else { 503 }, body.text())
}

async fn live(State(app): State<Arc<App>>) -> Response {
    let live = !app.failed.load(Ordering::Relaxed);
    json_response(if live { 200 } else { 503 }, Json::object([("live", Json::Bool(live))]).text())
}

async fn page() -> Response {
    ([(CONTENT_TYPE, "text/html; charset=utf-8"), (CACHE_CONTROL, "no-cache")], PAGE).into_response()
}

async fn models(State(app): State<Arc<App>>) -> Response {
    let data = app.models.all().map(|name| app.described(name)).collect();
    let list = Json::object([("object", "list".into()), ("data", Json::List(data))]);
    json_response(200, list.text())
}

async fn one_model(State(app): State<Arc<App>>, Path(id): Path<String>) -> Answered {
    let found = app.models.find(Some(&id))?;
    Ok(json_response(200, app.described(&found.name).text()))
}

async fn send_metrics(State(app): State<Arc<App>>) -> Answered {
    let model = app.model.clone();
    let told = spawn_blocking(move || Ok::<_, nn_core::Error>((model.occupancy()?, model.statistics()?.0)));
    let (now, done) = match told.await {
        Ok(Ok(told)) => told,
        Ok(Err(error)) => return Err(app.fail(error)),
        Err(error) => return Err(broken(&error)),
    };
    let open = app.open();
    let running = now.running.min(open);
    let text = app.metrics.text(&[
        ("nncuda_requests_running", running as f64),
        ("nncuda_requests_waiting", (open - running) as f64),
        ("nncuda_cache_usage_ratio", now.used_pages as f64 / now.pages as f64),
        ("nncuda_prompt_tokens", done.prefill_tokens as f64),
        ("nncuda_prefix_queries", done.prompt_tokens as f64),
        ("nncuda_prefix_hits", done.shared_tokens as f64),
    ]);
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

/// That a part of the server panicked.
fn broken(error: &tokio::task::JoinError) -> ApiError {
    log::message("error", &format!("a request failed: {error}"));
    ApiError::new("internal_error", &[])
}

type Seen = Extension<Arc<Exchange>>;

async fn completions(State(app): State<Arc<App>>, Extension(exchange): Seen, request: Request) -> Answered {
    answer(app, exchange, request, Requests::completions).await
}

async fn chat(State(app): State<Arc<App>>, Extension(exchange): Seen, request: Request) -> Answered {
    answer(app, exchange, request, Requests::chat).await
}

async fn responses(State(app): State<Arc<App>>, Extension(exchange): Seen, request: Request) -> Answered {
    answer(app, exchange, request, Requests::responses).await
}

async fn embeddings(State(app): State<Arc<App>>, Extension(exchange): Seen, request: Request) -> Answered {
    answer(app, exchange, request, Requests::embeddings).await
}

async fn tokenizer_info(State(app): State<Arc<App>>) -> Answered {
    Ok(json_response(200, app.beside(Table::new(), |requests, _| requests.tokenizer_info()).await?.text()))
}

async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Answered {
    convert(app, request, Requests::tokenize).await
}

async fn detokenize(State(app): State<Arc<App>>, request: Request) -> Answered {
    convert(app, request, Requests::detokenize).await
}

/// Counts a request among those that wait to become ids.
struct Preparing(Arc<App>);

impl Drop for Preparing {
    fn drop(&mut self) {
        self.0.preparing.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A route that writes texts.
async fn answer(
    app: Arc<App>,
    exchange: Arc<Exchange>,
    request: Request,
    prepare: fn(&Requests, &Table) -> Result<Asked, ApiError>,
) -> Answered {
    if *app.stage.borrow() != Stage::Serving {
        return Err(ApiError::new("draining", &[]).with("connection", "close"));
    }
    let body = read_json_body(request).await?;
    let before = app.preparing.fetch_add(1, Ordering::Relaxed);
    let preparing = Preparing(Arc::clone(&app));
    // Each has one text at least: what could not be submitted need not be looked into.
    app.check_places(before + 1)?;
    let asked = app.beside(body, prepare).await?;
    drop(preparing);
    let places = app.enter(asked.texts.len())?;
    let answer = Answer::submit(&app, asked, places, exchange, app.next_id())?;
    answer.respond().await
}

/// A route that needs the tokenizer alone.
async fn convert(
    app: Arc<App>,
    request: Request,
    convert: fn(&Requests, &Table) -> Result<Json, ApiError>,
) -> Answered {
    let body = read_json_body(request).await?;
    Ok(json_response(200, app.beside(body, convert).await?.text()))
}

impl App {
    /// Does what takes a while beside the connections, for one request after the other.
    async fn beside<T: Send + 'static>(
        self: &Arc<Self>,
        body: Table,
        work: fn(&Requests, &Table) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let turn = self.tokenizing.acquire().await;
        let app = Arc::clone(self);
        let done = spawn_blocking(move || work(&app.requests, &body)).await;
        drop(turn);
        done.map_err(|error| broken(&error))?
    }
}
