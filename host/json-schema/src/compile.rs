//! Reads a JSON Schema into checks. Every part of a schema becomes one node, also if several
//! references lead to it.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use crate::keyword::{Keyword, Read, below, count, dialect, kinds, one_of};
use crate::number::Num;
use crate::pattern::Pattern;
use crate::rules::{Check, InputSchema, NodeId, Object, Rest};

/// Most patterns of a schema.
pub(crate) const PATTERNS_MAX: usize = 16;

/// Bytes of memory for each byte of text, without patterns.
const BYTES_PER_CHAR: usize = 20;

/// Keywords that change the meaning of others and that the check cannot apply.
const UNSUPPORTED: [&str; 6] = [
    "$dynamicRef",
    "$recursiveRef",
    "unevaluatedProperties",
    "unevaluatedItems",
    "extends",
    "disallow",
];

/// The reader of one schema.
struct Compiler<'s> {
    document: &'s Value,
    nodes: Vec<Vec<Check>>,
    /// The nodes of the parts that were read, by their addresses in the document.
    known: HashMap<*const Value, NodeId>,
    /// For each node, those that check the same value.
    in_place: Vec<Vec<NodeId>>,
    /// The targets of references that are still to be read: a chain of references must not take
    /// stack.
    waiting: Vec<(NodeId, &'s Value, String)>,
    patterns: usize,
    pattern_bytes: usize,
}

/// Reads a schema whose text has so many bytes.
///
/// # Errors
/// One sentence with the first fault and its position.
pub(crate) fn compile(schema: &Value, text_bytes: usize) -> Read<InputSchema> {
    let mut compiler = Compiler {
        document: schema,
        nodes: Vec::new(),
        known: HashMap::new(),
        in_place: Vec::new(),
        waiting: Vec::new(),
        patterns: 0,
        pattern_bytes: 0,
    };
    let compiled = compiler.node(schema, "").and_then(|root| {
        while let Some((node, target, at)) = compiler.waiting.pop() {
            compiler.fill(node, target, &at)?;
        }
        compiler.check_cycles()?;
        Ok(root)
    });
    let root = compiled?;
    let bytes = text_bytes * BYTES_PER_CHAR + compiler.pattern_bytes;
    Ok(InputSchema { nodes: compiler.nodes, root, bytes })
}

impl<'s> Compiler<'s> {
    /// The node of a part of the schema.
    fn node(&mut self, schema: &'s Value, at: &str) -> Read<NodeId> {
        let address = std::ptr::from_ref(schema);
        if let Some(known) = self.known.get(&address) {
            return Ok(*known);
        }
        let id = self.new_node();
        self.known.insert(address, id);
        self.fill(id, schema, at)?;
        Ok(id)
    }

    fn new_node(&mut self) -> NodeId {
        self.nodes.push(Vec::new());
        self.in_place.push(Vec::new());
        self.nodes.len() - 1
    }

    fn fill(&mut self, id: NodeId, schema: &'s Value, at: &str) -> Read<()> {
        let checks = match schema {
            Value::Bool(true) => Vec::new(),
            Value::Bool(false) => vec![Check::Never],
            Value::Object(keywords) => self.keywords(keywords, at, id)?,
            _ => {
                let at = if at.is_empty() { "the schema" } else { &format!("`{at}`") };
                return Err(format!("{at} must be an object, true or false"));
            }
        };
        if let Some(node) = self.nodes.get_mut(id) {
            *node = checks;
        }
        Ok(())
    }

    fn keywords(
        &mut self,
        keywords: &'s Map<String, Value>,
        at: &str,
        id: NodeId,
    ) -> Read<Vec<Check>> {
        let mut checks = Vec::new();
        for (name, value) in keywords {
            if UNSUPPORTED.contains(&name.as_str()) {
                return Err(format!("`{at}/{name}` is not supported"));
            }
            let keyword = Keyword { name, value, at };
            let check = match self.plain(&keyword)? {
                Some(check) => Some(check),
                None => self.with_parts(&keyword, keywords, id)?,
            };
            checks.extend(check);
        }
        // The kind first: its fault says most.
        checks.sort_by_key(|check| !matches!(check, Check::Kinds(_)));
        Ok(checks)
    }

    /// A keyword without further schemas in it.
    fn plain(&mut self, keyword: &Keyword<'s, '_>) -> Read<Option<Check>> {
        Ok(Some(match keyword.name {
            "type" => Check::Kinds(kinds(keyword)?),
            "const" => one_of(std::slice::from_ref(keyword.value)),
            "enum" => one_of(keyword.list()?),
            "minimum" => Check::Least(keyword.number()?),
            "maximum" => Check::Most(keyword.number()?),
            "exclusiveMinimum" => Check::Above(keyword.number()?),
            "exclusiveMaximum" => Check::Below(keyword.number()?),
            "multipleOf" => match keyword.number()? {
                number if number > Num::Whole(0) => Check::MultipleOf(number),
                _ => return keyword.wrong("greater than 0"),
            },
            "minLength" => Check::CharsLeast(keyword.count()?),
            "maxLength" => Check::CharsMost(keyword.count()?),
            "pattern" => Check::Pattern(Box::new(self.pattern(keyword.text()?, keyword)?)),
            "minItems" => Check::ItemsLeast(keyword.count()?),
            "maxItems" => Check::ItemsMost(keyword.count()?),
            "uniqueItems" => match keyword.value {
                Value::Bool(true) => Check::Unique,
                Value::Bool(false) => return Ok(None),
                _ => return keyword.wrong("true or false"),
            },
            "minProperties" => Check::FieldsLeast(keyword.count()?),
            "maxProperties" => Check::FieldsMost(keyword.count()?),
            "required" => Check::Required(keyword.names()?),
            "dependentRequired" => {
                let pairs = keyword.object()?.iter().map(|(name, value)| {
                    let needed = Keyword { name, value, at: &below(keyword) };
                    Ok((name.clone(), needed.names()?))
                });
                Check::Beside(pairs.collect::<Read<_>>()?)
            }
            _ => return Ok(None),
        }))
    }

    /// A keyword with further schemas in it.
    fn with_parts(
        &mut self,
        keyword: &Keyword<'s, '_>,
        beside: &'s Map<String, Value>,
        id: NodeId,
    ) -> Read<Option<Check>> {
        let at = keyword.at;
        Ok(Some(match keyword.name {
            "$schema" => return dialect(keyword),
            "$id" | "id" if !at.is_empty() && keyword.value.is_string() => {
                return Err(format!("`{at}/{}` is supported only at the top", keyword.name));
            }
            "$ref" => Check::All(vec![self.reference(keyword, id)?]),
            "allOf" => Check::All(self.alternatives(keyword, id)?),
            "anyOf" => Check::Any(self.alternatives(keyword, id)?),
            "oneOf" => Check::One(self.alternatives(keyword, id)?),
            "not" => Check::Not(self.in_place(keyword, id)?),
            "if" => {
                let mut part = |name| {
                    let value = beside.get(name);
                    value.map(|value| self.in_place(&Keyword { name, value, at }, id)).transpose()
                };
                let (then, otherwise) = (part("then")?, part("else")?);
                Check::If { condition: self.in_place(keyword, id)?, then, otherwise }
            }
            "items" | "prefixItems" => {
                let is_first = keyword.name == "prefixItems" || !beside.contains_key("prefixItems");
                return if is_first { self.items(beside, at).map(Some) } else { Ok(None) };
            }
            "contains" => Check::Contains {
                node: self.part(keyword)?,
                least: count(beside, "minContains", at)?.unwrap_or(1),
                most: count(beside, "maxContains", at)?,
            },
            "propertyNames" => Check::Names(self.part(keyword)?),
            "properties" | "patternProperties" | "additionalProperties" => {
                let all = ["properties", "patternProperties", "additionalProperties"];
                let first = all.into_iter().find(|name| beside.contains_key(*name));
                return match first == Some(keyword.name) {
                    true => self.object(beside, at).map(|object| Some(Check::Object(object))),
                    false => Ok(None),
                };
            }
            "dependentSchemas" => {
                Check::IfPresent(self.if_present(keyword.object()?, keyword, id)?)
            }
            "dependencies" => return self.dependencies(keyword, id),
            // Read also without a reference, so that a fault in it is found.
            "$defs" | "definitions" => {
                for (name, value) in keyword.object()? {
                    self.part(&Keyword { name, value, at: &below(keyword) })?;
                }
                return Ok(None);
            }
            _ => return Ok(None),
        }))
    }

    fn part(&mut self, keyword: &Keyword<'s, '_>) -> Read<NodeId> {
        self.node(keyword.value, &below(keyword))
    }

    /// A part that checks the same value as its node.
    fn in_place(&mut self, keyword: &Keyword<'s, '_>, of: NodeId) -> Read<NodeId> {
        let part = self.part(keyword)?;
        self.note_in_place(of, part);
        Ok(part)
    }

    fn note_in_place(&mut self, of: NodeId, part: NodeId) {
        if let Some(parts) = self.in_place.get_mut(of) {
            parts.push(part);
        }
    }

    fn alternatives(&mut self, keyword: &Keyword<'s, '_>, id: NodeId) -> Read<Vec<NodeId>> {
        let at = below(keyword);
        let parts = keyword.list()?.iter().enumerate();
        parts
            .map(|(index, value)| {
                let part = self.node(value, &format!("{at}/{index}"))?;
                self.note_in_place(id, part);
                Ok(part)
            })
            .collect()
    }

    fn reference(&mut self, keyword: &Keyword<'s, '_>, id: NodeId) -> Read<NodeId> {
        let text = keyword.text()?;
        let Some(pointer) = text.strip_prefix('#').filter(|p| p.is_empty() || p.starts_with('/'))
        else {
            return keyword.wrong("`#` or begin with `#/`: only parts of the same schema are read");
        };
        let pointer = percent_decoded(pointer);
        let Some(target) = self.document.pointer(&pointer) else {
            return keyword.wrong("a part of the schema that exists");
        };
        let address = std::ptr::from_ref(target);
        let node = match self.known.get(&address) {
            Some(known) => *known,
            None => {
                let node = self.new_node();
                self.known.insert(address, node);
                self.waiting.push((node, target, pointer));
                node
            }
        };
        self.note_in_place(id, node);
        Ok(node)
    }

    fn items(&mut self, beside: &'s Map<String, Value>, at: &str) -> Read<Check> {
        let keyword =
            |name: &'static str| beside.get(name).map(|value| Keyword { name, value, at });
        let older_list = keyword("items").filter(|items| items.value.is_array());
        let (first, rest) = match (keyword("prefixItems"), older_list) {
            (Some(first), _) => (Some(first), keyword("items")),
            (None, Some(list)) => (Some(list), keyword("additionalItems")),
            (None, None) => (None, keyword("items")),
        };
        let mut nodes = Vec::new();
        if let Some(first) = first {
            for (index, value) in first.list()?.iter().enumerate() {
                nodes.push(self.node(value, &format!("{}/{index}", below(&first)))?);
            }
        }
        let rest = rest.map(|rest| self.part(&rest)).transpose()?;
        Ok(Check::Items { first: nodes, rest })
    }

    fn object(&mut self, beside: &'s Map<String, Value>, at: &str) -> Read<Object> {
        let mut object =
            Object { named: BTreeMap::new(), patterns: Vec::new(), rest: Rest::Allowed };
        if let Some(value) = beside.get("properties") {
            let all = Keyword { name: "properties", value, at };
            for (name, value) in all.object()? {
                let node = self.part(&Keyword { name, value, at: &below(&all) })?;
                object.named.insert(name.clone(), node);
            }
        }
        if let Some(value) = beside.get("patternProperties") {
            let all = Keyword { name: "patternProperties", value, at };
            for (name, value) in all.object()? {
                let keyword = Keyword { name, value, at: &below(&all) };
                let pattern = self.pattern(name, &keyword)?;
                object.patterns.push((pattern, self.part(&keyword)?));
            }
        }
        object.rest = match beside.get("additionalProperties") {
            None | Some(Value::Bool(true)) => Rest::Allowed,
            Some(Value::Bool(false)) => Rest::Refused,
            Some(value) => {
                Rest::Node(self.part(&Keyword { name: "additionalProperties", value, at })?)
            }
        };
        Ok(object)
    }

    fn if_present(
        &mut self,
        parts: impl IntoIterator<Item = (&'s String, &'s Value)>,
        keyword: &Keyword<'s, '_>,
        id: NodeId,
    ) -> Read<Vec<(String, NodeId)>> {
        let at = below(keyword);
        let parts = parts.into_iter().map(|(name, value)| {
            Ok((name.clone(), self.in_place(&Keyword { name, value, at: &at }, id)?))
        });
        parts.collect()
    }

    /// Draft 7's form of `dependentRequired` and `dependentSchemas`.
    fn dependencies(&mut self, keyword: &Keyword<'s, '_>, id: NodeId) -> Read<Option<Check>> {
        let all = keyword.object()?;
        let mut checks = Vec::new();
        for (name, value) in all.iter().filter(|(_, value)| value.is_array()) {
            let needed = Keyword { name, value, at: &below(keyword) }.names()?;
            checks.push((name.clone(), needed));
        }
        let schemas = all.iter().filter(|(_, value)| !value.is_array());
        let schemas = self.if_present(schemas, keyword, id)?;
        let inner = self.new_node();
        if let Some(node) = self.nodes.get_mut(inner) {
            *node = vec![Check::Beside(checks), Check::IfPresent(schemas)];
        }
        Ok(Some(Check::All(vec![inner])))
    }

    fn pattern(&mut self, text: &str, keyword: &Keyword<'s, '_>) -> Read<Pattern> {
        self.patterns += 1;
        if self.patterns > PATTERNS_MAX {
            return Err(format!("it has more than {PATTERNS_MAX} patterns"));
        }
        let pattern = Pattern::compile(text)
            .map_err(|why| format!("`{}/{}`: {why}", keyword.at, keyword.name))?;
        self.pattern_bytes += pattern.bytes();
        Ok(pattern)
    }

    /// Refuses a schema that would check a value by checking the same value again.
    fn check_cycles(&self) -> Read<()> {
        const NEW: u8 = 0;
        const OPEN: u8 = 1;
        const DONE: u8 = 2;
        let mut states = vec![NEW; self.in_place.len()];
        for start in 0..self.in_place.len() {
            // Each entry is a node and the number of its parts that were visited.
            let mut path = vec![(start, 0)];
            while let Some((node, visited)) = path.pop() {
                let state = states.get(node).copied().unwrap_or(DONE);
                if state == DONE || (visited == 0 && state == OPEN) {
                    if state == OPEN {
                        return Err("a part of it refers to itself without a step into the input"
                            .to_owned());
                    }
                    continue;
                }
                let next = self.in_place.get(node).and_then(|parts| parts.get(visited)).copied();
                if let Some(state) = states.get_mut(node) {
                    *state = if next.is_some() { OPEN } else { DONE };
                }
                if let Some(next) = next {
                    path.push((node, visited + 1));
                    path.push((next, 0));
                }
            }
        }
        Ok(())
    }
}

/// The text of a fragment of a URI.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = match rest {
            [b'%', high, low, ..] => {
                str::from_utf8(&[*high, *low]).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok())
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
