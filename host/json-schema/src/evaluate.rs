//! Checks a value by a schema, step by step.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::canonical::canonical;
use crate::compile::PATTERNS_MAX;
use crate::fault::{Fault, PathStep, Rule};
use crate::number::Num;
use crate::pattern::{KEPT_STEPS_MAX, Pattern, States};
use crate::rules::{Check, InputSchema, Kinds, NodeId, Object, Rest};
use crate::text::values_at_most;

/// Deepest recursion of a check, which takes up to 1 MiB of stack.
const DEPTH_MAX: usize = 400;

/// Characters of text for each step, where they are counted, compared or copied.
const CHARS_PER_STEP: usize = 64;

/// Bytes of text for each step of a regular expression, besides the states that it makes.
const BYTES_SEARCHED_PER_STEP: usize = 12;

/// Characters of text for each step, where they are copied and hashed.
const CHARS_HASHED_PER_STEP: usize = 16;

/// Steps for a value that is kept in a set.
const STEPS_PER_ITEM: usize = 6;

/// Steps for a field whose place among the others is found.
const STEPS_PER_SORTED_FIELD: usize = 4;

/// Parts of a position for each step.
const PARTS_PER_STEP: usize = 8;

/// How much one check may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of the input.
    bytes_max: usize,
    /// Values of the input that are held in memory, some 50 bytes each.
    values_max: usize,
    /// Steps, some 20 ns each.
    steps_max: u64,
    /// Whether regular expressions begin without the states of earlier checks.
    makes_all_states: bool,
}

impl Budget {
    /// A check of 1.2 ms at most in the release build, so that it may run where other calls are
    /// served: some 0.8 ms for parsing the input, and the steps.
    pub const QUICK: Self =
        Self { bytes_max: 64 << 10, values_max: 4_000, steps_max: 20_000, makes_all_states: false };

    /// The largest one: some 50 ms besides parsing the input, and 30 MB of values besides their
    /// texts.
    pub const FULL: Self = Self {
        bytes_max: usize::MAX,
        values_max: 500_000,
        steps_max: 2_000_000,
        makes_all_states: true,
    };

    pub(crate) fn admits(self, input: &str) -> bool {
        input.len() <= self.bytes_max && values_at_most(input) <= self.values_max
    }
}

/// No answer depends on the checks before it: a quick check that passes with the states which they
/// have left also passes as a full check, which makes all states anew.
const _: () = assert!(
    Budget::QUICK.steps_max + KEPT_STEPS_MAX * PATTERNS_MAX as u64 <= Budget::FULL.steps_max
);

/// Why an input has not passed a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotChecked {
    /// It does not fit the schema; one sentence with the position, the rule and the allowed values.
    Invalid(String),
    /// The budget does not suffice.
    Exhausted,
}

/// Checks a value by a schema. A fault names the value by `name`.
///
/// # Errors
/// [`NotChecked`].
pub(crate) fn evaluate(
    schema: &InputSchema,
    name: &str,
    value: &Value,
    budget: Budget,
) -> Result<(), NotChecked> {
    let mut evaluation = Evaluation {
        schema,
        name,
        steps: budget.steps_max,
        makes_all_states: budget.makes_all_states,
        depth: 0,
        path: Vec::new(),
        states: HashMap::new(),
    };
    evaluation.node(schema.root, value).map_err(|stop| match stop {
        Stop::Fault(fault) => NotChecked::Invalid(fault.to_string()),
        Stop::Exhausted => NotChecked::Exhausted,
    })
}

/// Why an evaluation ends.
enum Stop<'a> {
    Fault(Box<Fault<'a>>),
    Exhausted,
}

type Checked<'a> = Result<(), Stop<'a>>;

struct Evaluation<'a> {
    schema: &'a InputSchema,
    name: &'a str,
    steps: u64,
    makes_all_states: bool,
    depth: usize,
    path: Vec<PathStep<'a>>,
    states: HashMap<*const Pattern, States>,
}

impl<'a> Evaluation<'a> {
    fn node(&mut self, node: NodeId, value: &'a Value) -> Checked<'a> {
        self.charge(1)?;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Stop::Exhausted);
        }
        let schema = self.schema;
        for check in schema.nodes.get(node).into_iter().flatten() {
            self.check(check, value)?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Whether a part fits; its fault is dropped.
    fn fits(&mut self, node: NodeId, value: &'a Value) -> Result<bool, Stop<'a>> {
        Ok(self.attempt(node, value)?.is_none())
    }

    /// The fault of a part, if it has one. The position is afterwards as it was before.
    fn attempt(
        &mut self,
        node: NodeId,
        value: &'a Value,
    ) -> Result<Option<Box<Fault<'a>>>, Stop<'a>> {
        let (depth, length) = (self.depth, self.path.len());
        match self.node(node, value) {
            Ok(()) => Ok(None),
            Err(Stop::Fault(fault)) => {
                self.depth = depth;
                self.path.truncate(length);
                Ok(Some(fault))
            }
            Err(Stop::Exhausted) => Err(Stop::Exhausted),
        }
    }

    fn below(&mut self, part: PathStep<'a>, node: NodeId, value: &'a Value) -> Checked<'a> {
        self.path.push(part);
        self.node(node, value)?;
        self.path.pop();
        Ok(())
    }

    fn charge(&mut self, steps: usize) -> Checked<'a> {
        self.steps = self.steps.checked_sub(steps as u64).ok_or(Stop::Exhausted)?;
        Ok(())
    }

    /// The steps for a look-up of each of these names.
    fn charge_names(&mut self, names: impl Iterator<Item = &'a str>) -> Checked<'a> {
        self.charge(names.map(name_size).sum())
    }

    fn fault(&mut self, rule: Rule<'a>, found: &'a Value) -> Stop<'a> {
        match self.charge(1 + self.path.len() / PARTS_PER_STEP) {
            Ok(()) => {
                let (name, path) = (self.name, self.path.clone());
                Stop::Fault(Box::new(Fault { name, path, rule, found }))
            }
            Err(stop) => stop,
        }
    }

    fn check(&mut self, check: &'a Check, value: &'a Value) -> Checked<'a> {
        let holds = match check {
            Check::Never => false,
            Check::Kinds(kinds) => kinds.has(value),
            Check::OneOfValues { values, .. } => {
                self.charge(size(value))?;
                values.contains(&canonical(value))
            }
            Check::Least(least) => number(value).is_none_or(|number| number >= *least),
            Check::Most(most) => number(value).is_none_or(|number| number <= *most),
            Check::Above(least) => number(value).is_none_or(|number| number > *least),
            Check::Below(most) => number(value).is_none_or(|number| number < *most),
            Check::MultipleOf(of) => number(value).is_none_or(|number| number.is_multiple_of(*of)),
            Check::CharsLeast(least) => self.chars(value)?.is_none_or(|chars| chars >= *least),
            Check::CharsMost(most) => self.chars(value)?.is_none_or(|chars| chars <= *most),
            Check::Pattern(pattern) => match value {
                Value::String(text) => self.matches(pattern, text)?,
                _ => true,
            },
            Check::ItemsLeast(least) => {
                list(value).is_none_or(|items| items.len() as u64 >= *least)
            }
            Check::ItemsMost(most) => list(value).is_none_or(|items| items.len() as u64 <= *most),
            Check::FieldsLeast(least) => {
                value.as_object().is_none_or(|fields| fields.len() as u64 >= *least)
            }
            Check::FieldsMost(most) => {
                value.as_object().is_none_or(|fields| fields.len() as u64 <= *most)
            }
            Check::Not(node) => !self.fits(*node, value)?,
            Check::Contains { node, least, most } => {
                self.contains(*node, *least, most.unwrap_or(u64::MAX), value)?
            }
            _ => return self.parts(check, value),
        };
        if holds { Ok(()) } else { Err(self.fault(Rule::Check(check), value)) }
    }

    /// The rules that report a fault of their own.
    fn parts(&mut self, check: &'a Check, value: &'a Value) -> Checked<'a> {
        match (check, value) {
            (Check::Unique, Value::Array(items)) => self.unique(items, value),
            (Check::Items { first, rest }, Value::Array(items)) => {
                self.items(first, *rest, items, value)
            }
            (Check::Required(names), Value::Object(fields)) => {
                self.charge_names(names.iter().map(String::as_str))?;
                match names.iter().find(|name| !fields.contains_key(*name)) {
                    Some(missing) => Err(self.fault(Rule::Missing(missing), value)),
                    None => Ok(()),
                }
            }
            (Check::Beside(pairs), Value::Object(fields)) => {
                self.charge_names(pairs.iter().map(|(name, _)| name.as_str()))?;
                for (name, needed) in pairs.iter().filter(|(name, _)| fields.contains_key(name)) {
                    self.charge_names(needed.iter().map(String::as_str))?;
                    if let Some(missing) = needed.iter().find(|name| !fields.contains_key(*name)) {
                        return Err(self.fault(Rule::MissingBeside(missing, name), value));
                    }
                }
                Ok(())
            }
            (Check::Object(object), Value::Object(_)) => self.object(object, value),
            (Check::Names(node), Value::Object(fields)) => {
                for name in fields.keys() {
                    // The name is copied.
                    self.charge(name_size(name))?;
                    if !self.fits_name(*node, name)? {
                        return Err(self.fault(Rule::BadName(name), value));
                    }
                }
                Ok(())
            }
            (Check::IfPresent(parts), Value::Object(fields)) => {
                self.charge_names(parts.iter().map(|(name, _)| name.as_str()))?;
                for (_, node) in parts.iter().filter(|(name, _)| fields.contains_key(name)) {
                    self.node(*node, value)?;
                }
                Ok(())
            }
            (Check::All(nodes), _) => nodes.iter().try_for_each(|node| self.node(*node, value)),
            (Check::Any(nodes), _) => self.any(nodes, value),
            (Check::One(nodes), _) => self.one(nodes, value),
            (Check::If { condition, then, otherwise }, _) => {
                let part = if self.fits(*condition, value)? { then } else { otherwise };
                part.map_or(Ok(()), |node| self.node(node, value))
            }
            // A rule for another kind of value.
            _ => Ok(()),
        }
    }

    fn any(&mut self, nodes: &'a [NodeId], value: &'a Value) -> Checked<'a> {
        let mut nearest = Nearest::at(self.path.len());
        for node in nodes {
            match self.attempt(*node, value)? {
                None => return Ok(()),
                Some(fault) => nearest.add(*fault),
            }
        }
        Err(self.no_alternative(nearest, value))
    }

    fn one(&mut self, nodes: &'a [NodeId], value: &'a Value) -> Checked<'a> {
        let (mut nearest, mut fitting) = (Nearest::at(self.path.len()), 0);
        for node in nodes {
            match self.attempt(*node, value)? {
                None => fitting += 1,
                Some(fault) => nearest.add(*fault),
            }
        }
        match fitting {
            1 => Ok(()),
            0 => Err(self.no_alternative(nearest, value)),
            _ => Err(self.fault(Rule::Fits(fitting), value)),
        }
    }

    fn no_alternative(&mut self, nearest: Nearest<'a>, value: &'a Value) -> Stop<'a> {
        match nearest.report() {
            Report::Fault(fault) => Stop::Fault(Box::new(fault)),
            Report::Rule(rule) => self.fault(rule, value),
        }
    }

    fn items(
        &mut self,
        first: &[NodeId],
        rest: Option<NodeId>,
        items: &'a [Value],
        value: &'a Value,
    ) -> Checked<'a> {
        for (index, item) in items.iter().enumerate() {
            let Some(node) = first.get(index).copied().or(rest) else { return Ok(()) };
            let is_refused =
                matches!(self.schema.nodes.get(node).map(Vec::as_slice), Some([Check::Never]));
            if is_refused && index >= first.len() {
                return Err(self.fault(Rule::TooMany(first.len()), value));
            }
            self.below(PathStep::Item(index), node, item)?;
        }
        Ok(())
    }

    fn contains(
        &mut self,
        node: NodeId,
        least: u64,
        most: u64,
        value: &'a Value,
    ) -> Result<bool, Stop<'a>> {
        let Some(items) = list(value) else { return Ok(true) };
        let mut count = 0;
        for item in items {
            count += u64::from(self.fits(node, item)?);
        }
        Ok((least..=most).contains(&count))
    }

    fn unique(&mut self, items: &'a [Value], value: &'a Value) -> Checked<'a> {
        let mut seen = HashSet::new();
        for item in items {
            self.charge(STEPS_PER_ITEM + size(item))?;
            if !seen.insert(canonical(item)) {
                return Err(self.fault(Rule::Repeated, value));
            }
        }
        Ok(())
    }

    fn object(&mut self, object: &'a Object, value: &'a Value) -> Checked<'a> {
        for (name, field) in value.as_object().into_iter().flatten() {
            // A look-up among 4,000 names takes 150 ns.
            self.charge(name_size(name) + object.named.len().max(1).ilog2() as usize / 2)?;
            let named = object.named.get(name);
            if let Some(node) = named {
                self.below(PathStep::Member(name), *node, field)?;
            }
            let mut is_known = named.is_some();
            for (pattern, node) in &object.patterns {
                if self.matches(pattern, name)? {
                    is_known = true;
                    self.below(PathStep::Member(name), *node, field)?;
                }
            }
            match object.rest {
                Rest::Refused if !is_known => {
                    return Err(self.fault(Rule::Unknown(name, object), value));
                }
                Rest::Node(node) if !is_known => self.below(PathStep::Member(name), node, field)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a name fits, in an evaluation of its own: the name is no value of the input.
    fn fits_name(&mut self, node: NodeId, name: &str) -> Result<bool, Stop<'a>> {
        let value = Value::String(name.to_owned());
        let mut inner = Evaluation {
            schema: self.schema,
            name: self.name,
            steps: self.steps,
            makes_all_states: self.makes_all_states,
            depth: self.depth,
            path: Vec::new(),
            states: std::mem::take(&mut self.states),
        };
        let fits = match inner.node(node, &value) {
            Ok(()) => Ok(true),
            Err(Stop::Fault(_)) => Ok(false),
            Err(Stop::Exhausted) => Err(Stop::Exhausted),
        };
        (self.steps, self.states) = (inner.steps, inner.states);
        fits
    }

    fn chars(&mut self, value: &Value) -> Result<Option<u64>, Stop<'a>> {
        let Value::String(text) = value else { return Ok(None) };
        self.charge(text.len() / CHARS_PER_STEP)?;
        Ok(Some(text.chars().count() as u64))
    }

    fn matches(&mut self, pattern: &'a Pattern, text: &str) -> Result<bool, Stop<'a>> {
        self.charge(1 + text.len() / BYTES_SEARCHED_PER_STEP)?;
        let is_new = self.makes_all_states;
        let states = self.states.entry(pattern).or_insert_with(|| pattern.states(is_new));
        pattern.matches(states, text, &mut self.steps).ok_or(Stop::Exhausted)
    }
}

/// The fault to report when no alternative fits: the one that is deepest in the input. Alternatives
/// that all refuse the kind of the value are reported together. It keeps one fault of all: they
/// have copies of their positions, and thousands of alternatives may refuse a value.
struct Nearest<'a> {
    /// Parts of the position of the value.
    here: usize,
    /// The kinds that the alternatives allow, while all of them refuse the kind.
    kinds: Option<Kinds>,
    has_faults: bool,
    /// Parts of the position of the deepest faults.
    deepest: usize,
    /// The first of them. A kind that does not fit says less than a rule that does not.
    first: Option<Fault<'a>>,
    has_more: bool,
}

/// The report of alternatives that do not fit.
enum Report<'a> {
    Fault(Fault<'a>),
    /// A fault of the value itself.
    Rule(Rule<'a>),
}

impl<'a> Nearest<'a> {
    fn at(here: usize) -> Self {
        let kinds = Some(Kinds::default());
        Self { here, kinds, has_faults: false, deepest: here, first: None, has_more: false }
    }

    fn add(&mut self, fault: Fault<'a>) {
        self.has_faults = true;
        let depth = fault.path.len();
        let refused = match fault.rule {
            Rule::Check(Check::Kinds(kinds)) if depth == self.here => Some(*kinds),
            Rule::NoKind(kinds) if depth == self.here => Some(kinds),
            _ => None,
        };
        self.kinds = self.kinds.zip(refused).map(|(all, refused)| all.with(refused));
        if depth > self.deepest {
            (self.deepest, self.first, self.has_more) = (depth, None, false);
        }
        let is_kind = matches!(fault.rule, Rule::Check(Check::Kinds(_))) && depth == self.here;
        if depth == self.deepest && !is_kind {
            match self.first {
                None => self.first = Some(fault),
                Some(_) => self.has_more = true,
            }
        }
    }

    fn report(self) -> Report<'a> {
        match (self.kinds, self.first) {
            (Some(kinds), _) if self.has_faults => Report::Rule(Rule::NoKind(kinds)),
            (_, Some(fault)) if !self.has_more || self.deepest > self.here => Report::Fault(fault),
            _ => Report::Rule(Rule::Fits(0)),
        }
    }
}

fn number(value: &Value) -> Option<Num> {
    match value {
        Value::Number(number) => Some(Num::of(number)),
        _ => None,
    }
}

fn list(value: &Value) -> Option<&Vec<Value>> {
    value.as_array()
}

/// The steps for a comparison of a name.
fn name_size(name: &str) -> usize {
    1 + name.len() / CHARS_PER_STEP
}

/// The steps for the canonical bytes of a value.
fn size(value: &Value) -> usize {
    let text = |text: &str| 1 + text.len() / CHARS_HASHED_PER_STEP;
    match value {
        Value::String(string) => text(string),
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => {
            let field = |(name, field): (&String, &Value)| {
                STEPS_PER_SORTED_FIELD + text(name) + size(field)
            };
            1 + fields.iter().map(field).sum::<usize>()
        }
        _ => 1,
    }
}
