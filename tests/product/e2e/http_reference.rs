//! `docs/reference/http.md` is written from the OpenAPI document of a host: an operation that the
//! host serves is in it, with each parameter, field, bound and refusal, and nothing else is.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use gristmill_tests::{TestHost, reference};
use serde_json::{Map, Value};

const ABOUT: &str = "# HTTP reference

All operations of the queue API and of the management API, with the documents that they take and return.
A test writes this page from the OpenAPI document of a host, which `GET /openapi.json` answers and `/v1/docs` shows.
[The rules of all routes](api.md) are about keys, owners and errors; [limits](limits.md) has rates, sizes and connections.

* **Key**: the scope that the key needs.
  An operation reaches the objects of the key's owner, with an admin key those of all owners; [another owner's object](api.md#owners) is answered with 404.
* **Refused**: the status codes of refusals; [a table](api.md#errors) has their `code`s and causes.
* A parameter is optional unless its row says otherwise.
  In a body `null` counts as absent.
* The routes below `/v2` exist below `/sdk/v2` too, for the official SDKs, and differ only in the answer of `/stream`.
";

/// The methods of a path, in the order of the page.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// Ends the name of an operation that is a second form of another one.
const BY_POST: &str = "ByPost";

#[tokio::test]
async fn the_reference_of_the_apis_is_the_document() {
    // The fields of the operator's brand are no part of the reference.
    let host = TestHost::start_with(&["--brand", "Platform"]);
    let document = host.client().get("/openapi.json").await.ok();
    reference::check("docs/reference/http.md", &Page::new(&document).write());
}

/// The page of one document.
struct Page<'a> {
    document: &'a Value,
    schemas: &'a Map<String, Value>,
    /// The names of the schemas that bodies consist of.
    inputs: BTreeSet<&'a str>,
    text: String,
}

/// An operation with its place.
struct Operation<'a> {
    /// `GET`, or `GET, POST` if both are the same call.
    methods: String,
    path: &'a str,
    content: &'a Value,
}

impl Operation<'_> {
    fn heading(&self) -> String {
        format!("{} {}", self.methods, self.path)
    }
}

impl<'a> Page<'a> {
    fn new(document: &'a Value) -> Self {
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let mut page = Self { document, schemas, inputs: BTreeSet::new(), text: ABOUT.to_owned() };
        for operation in page.operations() {
            page.find_inputs(&operation.content["requestBody"]);
        }
        page
    }

    fn write(mut self) -> String {
        let operations = self.operations();
        let tags = self.document["tags"].as_array().unwrap();
        let of_tag = |tag: &Value| {
            let name = tag["name"].clone();
            operations.iter().filter(move |operation| operation.content["tags"][0] == name)
        };
        self.line("\n| Operation | Key | |\n|---|---|---|");
        for operation in tags.iter().flat_map(of_tag) {
            let heading = operation.heading();
            let (key, summary) = (key(operation.content), sentence(&operation.content["summary"]));
            self.line(&format!("| [`{heading}`](#{}) | {key} | {summary} |", anchor(&heading)));
        }
        for tag in tags {
            self.line(&format!("\n## {}\n", capitalized(tag["name"].as_str().unwrap())));
            self.line(&sentence(&tag["description"]));
            of_tag(tag).for_each(|operation| self.operation(operation));
        }
        let (documents, types): (Vec<_>, Vec<_>) =
            self.schemas.iter().partition(|(_, schema)| is_document(schema));
        self.line("\n## Documents");
        documents.into_iter().for_each(|(name, schema)| self.schema(name, schema));
        self.line("\n## Types\n\n| Type | Form | |\n|---|---|---|");
        for (name, schema) in types {
            let form = cell(&self.shape(schema).all());
            let of = [schema, &schema["items"]].map(|part| sentence(&part["description"]));
            let about = joined(&of.join(" "));
            self.line(&format!("| {name} | {form} | {about} |"));
        }
        self.text
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// A description, each of its sentences on a line.
    fn paragraphs(&mut self, about: &Value) {
        for (i, paragraph) in text(about).split("\n\n").map(joined).enumerate() {
            if i > 0 {
                self.line("");
            }
            if !paragraph.is_empty() {
                let line = stopped(&paragraph);
                self.line(&line.replace(". ", ".\n"));
            }
        }
    }

    /// The operations, without second forms of the same call.
    fn operations(&self) -> Vec<Operation<'a>> {
        let document: &'a Value = self.document;
        let paths = document["paths"].as_object().unwrap();
        let mut found: Vec<Operation<'a>> = Vec::new();
        for (path, item) in paths.iter().filter(|(path, _)| !path.starts_with("/sdk/")) {
            for method in METHODS {
                let content = &item[method];
                let Some(id) = content["operationId"].as_str() else { continue };
                let name = method.to_uppercase();
                let same = found.last_mut().filter(|last| {
                    last.path == path && last.content["summary"] == content["summary"]
                });
                match same {
                    Some(last) => {
                        last.methods = format!("{}, {name}", last.methods);
                        // A body is for one of the methods.
                        if content["requestBody"].is_object() {
                            last.content = content;
                        }
                    }
                    None if id.ends_with(BY_POST) => {}
                    None => found.push(Operation { methods: name, path, content }),
                }
            }
        }
        found
    }

    /// Adds the schemas that a value refers to.
    fn find_inputs(&mut self, value: &'a Value) {
        match value {
            Value::Object(fields) => {
                if let Some(name) = reference_of(value)
                    && self.inputs.insert(name)
                {
                    self.find_inputs(&self.schemas[name]);
                }
                fields.values().for_each(|value| self.find_inputs(value));
            }
            Value::Array(items) => items.iter().for_each(|value| self.find_inputs(value)),
            _ => {}
        }
    }

    fn operation(&mut self, operation: &Operation<'a>) {
        let Operation { methods, path, content } = operation;
        self.line(&format!("\n### {}\n", operation.heading()));
        self.line(&sentence(&content["summary"]));
        self.paragraphs(&content["description"]);
        let has_update = self.document["paths"][format!("{path}/update")]["post"].is_object();
        if has_update && methods.contains("PATCH") {
            self.line(&format!("`POST {path}/update` is the same call."));
        }
        self.line("");
        self.line(&format!("* Key: {}", key(content)));
        for (kind, body) in content["requestBody"]["content"].as_object().into_iter().flatten() {
            let form = self.form(&body["schema"]);
            self.line(&format!("* Body{}: {form}", kind_of_content(kind)));
        }
        let (answers, refusals): (Vec<_>, Vec<_>) = content["responses"]
            .as_object()
            .unwrap()
            .iter()
            .partition(|(status, _)| status.starts_with('2') || *status == "default");
        for (status, answer) in answers {
            self.answer(status, answer);
        }
        if !refusals.is_empty() {
            let statuses: Vec<_> = refusals.iter().map(|(status, _)| status.as_str()).collect();
            self.line(&format!("* Refused: {}", statuses.join(", ")));
        }
        let parameters = content["parameters"].as_array().into_iter().flatten();
        let rows: Vec<_> = parameters.map(|parameter| self.parameter(parameter)).collect();
        if !rows.is_empty() {
            self.line("\n| Parameter | In | Type | |\n|---|---|---|---|");
            self.line(&rows.join("\n"));
        }
        self.line(&format!("\n```sh\n{}\n```", example(operation)));
    }

    fn answer(&mut self, status: &str, answer: &'a Value) {
        let status = if status == "default" { "Refused" } else { status };
        let mut line = format!("* {status}: {}", sentence(&answer["description"]));
        for (kind, content) in answer["content"].as_object().into_iter().flatten() {
            let schema = &content["schema"];
            // A text in a format of its own is described in words.
            let body = match schema["description"].as_str() {
                Some(_) if schema["type"] == "string" => prose(&schema["description"]),
                _ => self.form(schema),
            };
            write!(line, " Body{}: {}", kind_of_content(kind), stopped(&body)).unwrap();
        }
        for (name, header) in answer["headers"].as_object().into_iter().flatten() {
            let form = self.form(&header["schema"]);
            write!(line, " Header `{name}` ({form}): {}", sentence(&header["description"]))
                .unwrap();
        }
        self.line(&line);
    }

    fn parameter(&self, parameter: &'a Value) -> String {
        let (name, place) = (text(&parameter["name"]), text(&parameter["in"]));
        let schema = &parameter["schema"];
        let mut about = sentence(&parameter["description"]);
        let of_type = sentence(&schema["description"]);
        if !of_type.is_empty() && place != "path" {
            write!(about, " {of_type}").unwrap();
        }
        format!("| `{name}` | {place} | {} | {about} |", cell(&self.form(schema)))
    }

    fn schema(&mut self, name: &'a str, schema: &'a Value) {
        self.line(&format!("\n### {name}\n"));
        self.paragraphs(&schema["description"]);
        let parts = schema["allOf"].as_array();
        let own = parts.map_or(schema, |parts| parts.last().unwrap());
        let Some(fields) = own["properties"].as_object() else { return };
        if let Some(parts) = parts {
            for part in &parts[..parts.len() - 1] {
                let form = self.form(part);
                self.line(&format!("\nThe fields of {form}, and these:"));
            }
        }
        let required: Vec<_> = own["required"].as_array().into_iter().flatten().map(text).collect();
        match self.same_fields(name, fields) {
            Some(other) => self.fields_of_other(name, fields, &required, other),
            None => self.table_of_fields(name, fields, &required),
        }
    }

    fn table_of_fields(&mut self, name: &str, fields: &'a Map<String, Value>, required: &[&str]) {
        self.line("\n| Field | Type | |\n|---|---|---|");
        let is_input = self.inputs.contains(name);
        for (field, schema) in fields {
            let mut form = self.form(schema);
            if is_input && schema["default"].is_null() {
                form += &self.default_of(fields, field).unwrap_or_default();
            }
            form += match (is_input, required.contains(&field.as_str())) {
                (true, true) => ", required",
                (false, false) => ", or absent",
                _ => "",
            };
            let about = stopped(&about(schema));
            self.line(&format!("| `{field}` | {} | {about} |", cell(&form)));
        }
    }

    /// Instead of a table: the differences to a schema that has one.
    fn fields_of_other(
        &mut self,
        name: &str,
        fields: &Map<String, Value>,
        required: &[&str],
        (other, its_fields): (&str, &Map<String, Value>),
    ) {
        let names = |fields: &mut dyn Iterator<Item = &String>| listed(fields.map(String::as_str));
        let missing = names(&mut its_fields.keys().filter(|field| !fields.contains_key(*field)));
        let but = if missing.is_empty() { missing } else { format!(" but {missing}") };
        self.line(&format!("\nIt has all fields of {}{but}.", link(other, other)));
        if self.inputs.contains(name) {
            return self.line(&format!("Required: {}.", listed(required.iter().copied())));
        }
        let optional = |field: &&String| !required.contains(&field.as_str());
        let absent = names(&mut fields.keys().filter(optional));
        if !absent.is_empty() {
            self.line(&format!("Absent without a value: {absent}."));
        }
    }

    /// A schema with a table that has all of these fields.
    fn same_fields(
        &self,
        name: &str,
        fields: &Map<String, Value>,
    ) -> Option<(&'a str, &'a Map<String, Value>)> {
        let required = |name: &str| self.schemas[name]["required"].as_array().map_or(0, Vec::len);
        let rank = |name: &str, fields: &Map<String, Value>| {
            (self.inputs.contains(name), fields.len(), Reverse(required(name)))
        };
        let schemas: &'a Map<String, Value> = self.schemas;
        schemas.iter().find_map(|(other, schema)| {
            let its_fields = schema["properties"].as_object()?;
            let is_shown = rank(other, its_fields) > rank(name, fields);
            let has = |field: &String, schema: &Value| {
                its_fields.get(field).is_some_and(|its| about(its).starts_with(&about(schema)))
            };
            let all = fields.len() > 1 && fields.iter().all(|(field, schema)| has(field, schema));
            (is_shown && all).then_some((other.as_str(), its_fields))
        })
    }

    /// The default of a field of an input, which the answers that show it have.
    fn default_of(&self, fields: &Map<String, Value>, field: &str) -> Option<String> {
        self.schemas.values().find_map(|schema| {
            let shown = schema["properties"].as_object()?;
            let is_part = shown.keys().all(|field| fields.contains_key(field));
            default_in(shown.get(field)?).filter(|_| is_part)
        })
    }

    /// The type of a value, with its bounds: a link if it has a name.
    fn form(&self, schema: &'a Value) -> String {
        let Some(name) = reference_of(schema) else { return self.shape(schema).all() };
        let target = &self.schemas[name];
        if is_document(target) {
            return link(name, name);
        }
        let Shape { kind, bounds, default, .. } = self.shape(target);
        let words = Some(kind).filter(|kind| kind.starts_with('`') && kind.len() < 100);
        let words = words.map(|words| format!(": {words}")).unwrap_or_default();
        let default = default_in(schema).or(default);
        format!("{}{words}{}{}", link(name, "types"), bounds.concat(), default.unwrap_or_default())
    }

    /// The type of a value without a name.
    fn shape(&self, schema: &'a Value) -> Shape {
        let (mut bounds, default) = (Vec::new(), default_in(schema));
        let of_kind =
            |kind: String| Shape { kind, default: default_in(schema), ..Shape::default() };
        if let Some(forms) = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array()) {
            let forms = forms.iter().filter(|schema| schema["type"] != "null");
            return of_kind(forms.map(|form| self.form(form)).collect::<Vec<_>>().join(", or "));
        }
        if let Some(words) = schema["enum"].as_array() {
            return of_kind(listed(words.iter().map(text)));
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().find(|kind| **kind != "null").unwrap(),
            kind => kind,
        };
        let number = |name: &str| schema[name].as_u64();
        match (number("minimum"), number("maximum")) {
            (Some(min), Some(max)) if min == max => return of_kind(min.to_string()),
            (Some(min), Some(max)) => bounds.push(format!(", {min} to {max}")),
            (Some(min), None) if min > 0 => bounds.push(format!(", at least {min}")),
            (None, Some(max)) => bounds.push(format!(", at most {max}")),
            _ => {}
        }
        match (number("minLength"), number("maxLength")) {
            (Some(min), Some(max)) => bounds.push(format!(", {min} to {max} characters")),
            (None, Some(max)) => bounds.push(format!(", at most {max} characters")),
            _ => {}
        }
        for (name, unit) in [("maxItems", "element"), ("maxProperties", "entry")] {
            match number(name) {
                Some(1) => bounds.push(format!(", at most 1 {unit}")),
                Some(max) => bounds.push(format!(", at most {max} {}s", unit.replace('y', "ie"))),
                None => {}
            }
        }
        let mut of = String::new();
        let kind = match text(kind) {
            "array" => {
                of = format!(": {}", self.form(&schema["items"]));
                "list"
            }
            "object" if schema["additionalProperties"].is_object() => {
                let (names, values) = (&schema["propertyNames"], &schema["additionalProperties"]);
                of = format!(": {} → {}", self.form(names), self.form(values));
                "object"
            }
            "object" => "JSON object",
            "string" => match text(&schema["format"]) {
                "" => "text",
                "date-time" => "time",
                "uri" => "URL",
                "binary" => "bytes",
                "host-pattern" => "host pattern",
                "registry-host" => "registry",
                other => other,
            },
            "" => "JSON",
            other => other,
        };
        // A longer pattern is explained by the description.
        let pattern = schema["pattern"].as_str().filter(|pattern| pattern.len() < 40);
        let pattern = pattern.map(|pattern| format!(", `{pattern}`")).unwrap_or_default();
        Shape { kind: kind.to_owned(), bounds, of, pattern, default }
    }
}

/// A type in words.
#[derive(Default)]
struct Shape {
    kind: String,
    /// Each begins with a comma.
    bounds: Vec<String>,
    /// The elements of a list or an object.
    of: String,
    pattern: String,
    default: Option<String>,
}

impl Shape {
    fn all(&self) -> String {
        let Self { kind, bounds, of, pattern, default } = self;
        format!("{kind}{}{pattern}{}{of}", bounds.concat(), default.clone().unwrap_or_default())
    }
}

fn is_document(schema: &Value) -> bool {
    schema["properties"].is_object() || schema["allOf"].is_array()
}

/// `Authorization` of an operation in words.
fn key(operation: &Value) -> String {
    match operation["security"][0]["bearer"][0].as_str() {
        None => "none".to_owned(),
        Some(scope @ ("metrics" | "admin")) => format!("`{scope}`, of the operator"),
        Some(scope) => format!("`{scope}`"),
    }
}

/// The call as a command, with the example of the document as its body.
fn example(operation: &Operation<'_>) -> String {
    let method = operation.methods.rsplit(", ").next().unwrap();
    let mut line = String::from("curl");
    if method != "GET" {
        write!(line, " -X {method}").unwrap();
    }
    if key(operation.content) != "none" {
        line.push_str(" -H \"Authorization: Bearer $KEY\"");
    }
    for (kind, body) in
        operation.content["requestBody"]["content"].as_object().into_iter().flatten()
    {
        match &body["example"] {
            Value::Null => line.push_str(" --data-binary @FILE"),
            example => write!(line, " -H 'Content-Type: {kind}' -d '{example}'").unwrap(),
        }
    }
    let mut path = operation.path.to_owned();
    for parameter in operation.content["parameters"].as_array().into_iter().flatten() {
        let name = text(&parameter["name"]);
        let value = match &parameter["example"] {
            Value::Null => name.to_uppercase(),
            Value::String(value) => value.clone(),
            value => value.to_string(),
        };
        path = path.replace(&format!("{{{name}}}"), &value);
    }
    format!("{line} http://127.0.0.1:8080{path}")
}

fn kind_of_content(kind: &str) -> String {
    if kind == "application/json" { String::new() } else { format!(" as `{kind}`") }
}

/// The description of a field: its own, or that of the only form that it can have.
fn about(schema: &Value) -> String {
    let of_form = || {
        let forms = schema["oneOf"].as_array().into_iter().flatten();
        forms.map(|form| prose(&form["description"])).find(|text| !text.is_empty())
    };
    match prose(&schema["description"]) {
        text if text.is_empty() => of_form().unwrap_or_default(),
        text => text,
    }
}

fn reference_of(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/components/schemas/"))
}

fn default_in(schema: &Value) -> Option<String> {
    match &schema["default"] {
        Value::String(word) => Some(format!(", default `{word}`")),
        number @ Value::Number(_) => Some(format!(", default {number}")),
        _ => None,
    }
}

fn link(name: &str, heading: &str) -> String {
    format!("[{name}](#{})", anchor(heading))
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A text of several lines as one line.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn prose(value: &Value) -> String {
    joined(text(value))
}

/// The same, with its last stop.
fn sentence(value: &Value) -> String {
    stopped(&prose(value))
}

fn stopped(text: &str) -> String {
    let text = text.replace('|', "\\|");
    if text.is_empty() || text.ends_with(['.', '…']) { text } else { format!("{text}.") }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// A text in a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
