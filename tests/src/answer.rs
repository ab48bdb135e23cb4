//! The host's answer, with the assertions for every answer.

use reqwest::header::HeaderMap;
use serde_json::Value;

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The call, for messages.
    pub call: String,
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub text: String,
}

impl Answer {
    /// A header's text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        let media_type = self.header("content-type").unwrap_or_default();
        assert!(media_type.starts_with("application/json"), "{self:?}");
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body of a success. The queue API's one success code is 200.
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// The chunks of an answer of `/stream`.
    pub fn chunks(&self) -> Vec<Value> {
        self.ok().as_array().unwrap_or_else(|| panic!("no array: {self:?}")).clone()
    }

    /// The job's status in an answer of `/stream`.
    pub fn job_status(&self) -> &str {
        self.header("x-job-status").unwrap_or_else(|| panic!("no X-Job-Status: {self:?}"))
    }

    /// The path of a list's next page; `None` on the last page.
    pub fn next_page(&self) -> Option<String> {
        let link = self.header("link")?;
        let path = link.strip_prefix('<').and_then(|link| link.strip_suffix(">; rel=\"next\""));
        Some(path.unwrap_or_else(|| panic!("no link to a next page: {self:?}")).to_owned())
    }

    /// Asserts the status code and format of a refusal under `/openai`, and returns the `type` and
    /// `code` of the error: exactly `{"error":{"message","type","param","code"}}`.
    pub fn refused_as_openai(&self, status: u16) -> (String, String) {
        assert_eq!(self.status, status, "{self:?}");
        let body = self.json();
        let error = body["error"].as_object().unwrap_or_else(|| panic!("no error: {self:?}"));
        let mut names: Vec<_> = error.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["code", "message", "param", "type"], "{self:?}");
        assert_eq!(body.as_object().map(serde_json::Map::len), Some(1), "{self:?}");
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        assert!(!text("message").is_empty(), "{self:?}");
        (text("type"), text("code"))
    }

    /// Asserts the refusal's status code and format, and returns its sentence: exactly
    /// `{"error","code"}`, on the management API with the sentence as `message` too; never a key
    /// `status`, for which a client would poll for ever.
    pub fn refused(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        let body = self.json();
        let fields = body.as_object().unwrap_or_else(|| panic!("no object: {self:?}"));
        let mut names: Vec<_> = fields.keys().map(String::as_str).collect();
        names.sort_unstable();
        let is_management = self.call.contains(" /v1/");
        let expected: &[&str] =
            if is_management { &["code", "error", "message"] } else { &["code", "error"] };
        assert_eq!(names, expected, "{self:?}");
        let sentence = body["error"].as_str().unwrap_or_default().to_owned();
        assert!(!sentence.is_empty(), "{self:?}");
        if is_management {
            assert_eq!(body["message"], body["error"], "{self:?}");
        }
        let code = body["code"].as_str().unwrap_or_default();
        let is_snake_case =
            !code.is_empty() && code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        assert!(is_snake_case, "{self:?}");
        sentence
    }
}
