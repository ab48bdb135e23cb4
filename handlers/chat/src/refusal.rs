//! Errors in OpenAI's format. They are the handler's output, not its failure: the host derives the
//! status code from their type.

use serde::Serialize;

/// Why a request is refused.
#[derive(Debug, Serialize)]
pub struct Refusal {
    error: Fields,
}

#[derive(Debug, Serialize)]
struct Fields {
    message: String,
    r#type: &'static str,
    param: Option<String>,
    code: Option<&'static str>,
}

impl Refusal {
    /// An invalid parameter: 400.
    pub fn invalid(param: &str, message: impl Into<String>) -> Self {
        let param = Some(param.to_owned());
        let (message, r#type) = (message.into(), "invalid_request_error");
        Self { error: Fields { message, r#type, param, code: None } }
    }

    /// An unknown model: 404.
    pub fn unknown_model(name: &str) -> Self {
        let message = format!("the model `{name}` does not exist; there is `{}`", crate::MODEL);
        let (param, code) = (Some("model".to_owned()), Some("model_not_found"));
        Self { error: Fields { message, r#type: "not_found_error", param, code } }
    }

    /// An unknown route: 404.
    pub fn unknown_route(route: &str) -> Self {
        let message = format!(
            "there is no route `{route}`; there are /v1/chat/completions, /v1/completions, \
             /v1/models and /v1/models/{{model}}"
        );
        let code = Some("unknown_url");
        Self { error: Fields { message, r#type: "not_found_error", param: None, code } }
    }
}
