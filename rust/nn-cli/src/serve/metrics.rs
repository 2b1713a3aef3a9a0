//! What the server counts, in the text format of Prometheus: the metrics of api.json, each also by its aliases.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::api::{API, Metric};

/// What a response of /metrics is.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of a server whose model has the name.
#[derive(Debug)]
pub(super) struct Metrics {
    model: String,
    state: Mutex<HashMap<&'static str, Series>>,
}

/// A metric's numbers.
#[derive(Debug, Default)]
struct Series {
    /// By the labels that follow the model's, as they are written.
    values: BTreeMap<String, f64>,
    /// Observations of a histogram, a number for each of its buckets and one for those beyond.
    counts: Vec<u64>,
    sum: f64,
}

impl Metrics {
    pub(super) fn new(model: &str) -> Self {
        Self { model: label(model), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<&'static str, Series>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, name: &'static str, labels: String) {
        *self.lock().entry(name).or_default().values.entry(labels).or_default() += 1.0;
    }

    fn set(&self, name: &'static str, value: f64) {
        self.lock().entry(name).or_default().values.insert(String::new(), value);
    }

    fn observe(&self, name: &'static str, seconds: Duration) {
        let Some(metric) = API.metrics.iter().find(|metric| metric.name == name) else { return };
        let value = seconds.as_secs_f64();
        let at = metric.buckets.partition_point(|bucket| *bucket < value);
        let mut state = self.lock();
        let series = state.entry(name).or_default();
        series.counts.resize(metric.buckets.len() + 1, 0);
        series.counts[at] += 1;
        series.sum += value;
    }

    /// A text has its first token, so long after its submission.
    pub(super) fn first_token(&self, seconds: Duration) {
        self.observe("nncuda_time_to_first_token_seconds", seconds);
        self.add("nncuda_generated_tokens", String::new());
    }

    /// A text has another token, so long after the one before.
    pub(super) fn next_token(&self, seconds: Duration) {
        self.observe("nncuda_inter_token_seconds", seconds);
        self.add("nncuda_generated_tokens", String::new());
    }

    /// A text has ended, so long after its submission.
    pub(super) fn ended(&self, finish: &str, seconds: Duration) {
        self.add("nncuda_texts", format!("finish=\"{finish}\""));
        self.observe("nncuda_text_seconds", seconds);
    }

    /// A request got a response, or none where the client left. `route` is one of the server's, so that strangers make no new
    /// series.
    pub(super) fn answered(&self, route: &str, status: Option<u16>) {
        let status = status.map_or("none".to_owned(), |status| status.to_string());
        self.add("nncuda_http_requests", format!("route=\"{}\",status=\"{status}\"", label(route)));
    }

    /// All of them, with what else is known now: of gauges and of what the engine counts.
    pub(super) fn text(&self, now: &[(&'static str, f64)]) -> String {
        now.iter().for_each(|(name, value)| self.set(name, *value));
        let (state, none) = (self.lock(), Series::default());
        let mut out = String::new();
        for metric in &API.metrics {
            let series = state.get(metric.name.as_str()).unwrap_or(&none);
            for name in [&metric.name].into_iter().chain(&metric.aliases) {
                self.write(&mut out, metric, name, series);
            }
        }
        out
    }

    fn write(&self, out: &mut String, metric: &Metric, name: &str, series: &Series) {
        let model = &self.model;
        let name = if metric.kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        let mut line = |text: String| {
            let _ = writeln!(out, "{text}"); // a String takes all
        };
        line(format!("# HELP {name} {}\n# TYPE {name} {}", metric.about, metric.kind));
        if metric.kind == "histogram" {
            let mut count = 0;
            let bounds = metric.buckets.iter().map(|bucket| format!("{bucket:?}")).chain(["+Inf".to_owned()]);
            for (at, bound) in bounds.enumerate() {
                count += series.counts.get(at).copied().unwrap_or(0);
                line(format!("{name}_bucket{{le=\"{bound}\",model_name=\"{model}\"}} {count}.0"));
            }
            line(format!("{name}_count{{model_name=\"{model}\"}} {count}.0"));
            line(format!("{name}_sum{{model_name=\"{model}\"}} {:?}", series.sum));
            return;
        }
        if series.values.is_empty() && !matches!(metric.name.as_str(), "nncuda_texts" | "nncuda_http_requests") {
            line(format!("{name}{{model_name=\"{model}\"}} 0.0"));
        }
        for (labels, value) in &series.values {
            let more = if labels.is_empty() { String::new() } else { format!(",{labels}") };
            line(format!("{name}{{model_name=\"{model}\"{more}}} {value:?}"));
        }
    }
}

/// A label's value as it stands in quotes.
fn label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_there_by_all_of_its_names() {
        let metrics = Metrics::new("a\"b");
        metrics.first_token(Duration::from_millis(30));
        metrics.ended("stop", Duration::from_secs(2));
        metrics.answered("/health", Some(200));
        let text = metrics.text(&[("nncuda_requests_running", 3.0)]);
        for line in [
            "nncuda_requests_running{model_name=\"a\\\"b\"} 3.0",
            "vllm:num_requests_running{model_name=\"a\\\"b\"} 3.0",
            "nncuda_generated_tokens_total{model_name=\"a\\\"b\"} 1.0",
            "nncuda_texts_total{model_name=\"a\\\"b\",finish=\"stop\"} 1.0",
            "nncuda_http_requests_total{model_name=\"a\\\"b\",route=\"/health\",status=\"200\"} 1.0",
            "nncuda_time_to_first_token_seconds_bucket{le=\"0.02\",model_name=\"a\\\"b\"} 0.0",
            "nncuda_time_to_first_token_seconds_bucket{le=\"0.04\",model_name=\"a\\\"b\"} 1.0",
            "nncuda_time_to_first_token_seconds_bucket{le=\"+Inf\",model_name=\"a\\\"b\"} 1.0",
            "vllm:time_to_first_token_seconds_sum{model_name=\"a\\\"b\"} 0.03",
            "nncuda_inter_token_seconds_count{model_name=\"a\\\"b\"} 0.0",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
    }
}
