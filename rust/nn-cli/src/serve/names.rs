//! The names that requests have for what is served: that of the model, and those of its adapters.

use super::api::{ApiError, cut};

/// What is served by a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// The name that an answer bears.
    pub(super) name: String,
    /// The adapter that computes it, `None` for the model alone.
    pub(super) adapter: Option<String>,
}

/// The names of a server.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The model without a named adapter; no adapter has its name.
    pub(super) model: String,
    pub(super) adapters: Vec<String>,
}

impl Names {
    /// What a request asks for. An error for a name that there is not.
    pub(super) fn find(&self, asked: Option<&str>) -> Result<Chosen, ApiError> {
        let Some(asked) = asked.filter(|asked| *asked != self.model) else {
            return Ok(Chosen { name: self.model.clone(), adapter: None });
        };
        if !self.adapters.iter().any(|name| name == asked) {
            let there: Vec<&str> = self.all().collect();
            let there = there.join(", ");
            return Err(ApiError::of("model_not_found", "model", &[("value", &cut(asked)), ("model", &there)]));
        }
        Ok(Chosen { name: asked.to_owned(), adapter: Some(asked.to_owned()) })
    }

    /// All of them, the model's first.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.model).chain(&self.adapters).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn requests_choose_by_name() {
        let names = Names { model: "small".into(), adapters: vec!["sea".into(), "a/ship".into()] };
        let found = |asked| {
            let chosen = names.find(asked).unwrap();
            (chosen.name, chosen.adapter)
        };
        assert_eq!(found(None), ("small".into(), None));
        assert_eq!(found(Some("small")), ("small".into(), None));
        assert_eq!(found(Some("a/ship")), ("a/ship".into(), Some("a/ship".into())));
        let refused = names.find(Some(&"ö".repeat(300))).unwrap_err();
        let asked = "ö".repeat(256);
        assert_eq!(refused.sentence, format!("there is no model {asked}; this server has small, sea, a/ship"));
    }
}
