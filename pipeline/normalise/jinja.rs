//! Jinja chat templates as `transformers` runs them: block trimming, Python's methods on strings,
//! dictionaries and lists, Python's text of values, `tojson` as `json.dumps`, `raise_exception`.

use std::collections::BTreeSet;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State};
use minijinja_contrib::pycompat;

use super::python;
use super::tags::{Tags, rewrite_generation};
use crate::source::python_json::{push_text, python_float};

/// Name of the only template of an environment.
const NAME: &str = "chat";

/// Variables with the marks that stand round a `{% generation %}` block.
const BEGIN: &str = "potable_generation_begin";
const END: &str = "potable_generation_end";

/// A template that cannot be used, in the words for its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// What is wrong, with its line where that is known.
    pub problem: String,
}

/// A compiled template.
#[derive(Clone, Debug)]
pub(super) struct Jinja {
    env: Environment<'static>,
    generation: bool,
}

/// What a template is rendered with.
#[derive(Clone, Debug, Default)]
pub(super) struct Input {
    /// The messages, each a map.
    pub messages: Vec<Value>,
    /// The tools; none is Python's `None`.
    pub tools: Vec<Value>,
    /// Whether the header of an answer is to be added.
    pub prompt: bool,
    /// Marks round generation blocks; empty for the text alone.
    pub marks: (String, String),
    /// Further variables, such as `bos_token`.
    pub more: Vec<(String, Value)>,
}

impl Jinja {
    /// Compiles a template and looks for names that it does not have.
    ///
    /// # Errors
    /// A syntax error; a filter, test or function that there is not; a function that gives the time.
    pub fn new(source: &str) -> Result<Jinja, Broken> {
        let (text, generation) = rewrite_generation(source, BEGIN, END);
        let mut env = environment();
        let broken = |e: Error| Broken { problem: problem(&e) };
        env.add_template_owned(NAME, text).map_err(broken)?;
        let jinja = Jinja { env, generation };
        jinja.check_names(source)?;
        Ok(jinja)
    }

    /// Whether the template marks what the model writes by `{% generation %}`.
    pub fn marks_generation(&self) -> bool {
        self.generation
    }

    /// Renders.
    ///
    /// # Errors
    /// What the template raises.
    pub fn render(&self, input: &Input) -> Result<String, Broken> {
        let tools = match input.tools.is_empty() {
            true => Value::from(()),
            false => Value::from(input.tools.clone()),
        };
        let known = [
            ("messages".to_owned(), Value::from(input.messages.clone())),
            ("tools".to_owned(), tools),
            ("documents".to_owned(), Value::from(())),
            ("add_generation_prompt".to_owned(), Value::from(input.prompt)),
            (BEGIN.to_owned(), Value::from(input.marks.0.as_str())),
            (END.to_owned(), Value::from(input.marks.1.as_str())),
        ];
        let context = Value::from_pairs(known.into_iter().chain(input.more.iter().cloned()));
        let template = self.env.get_template(NAME).map_err(|e| Broken { problem: problem(&e) })?;
        template.render(context).map_err(|e| Broken { problem: problem(&e) })
    }

    /// Names are only looked up when a template reaches them, which may be in the millionth row.
    fn check_names(&self, source: &str) -> Result<(), Broken> {
        let tags = Tags::of(source);
        let unknown = |what: &str, name: &str, line: usize| Broken {
            problem: format!("line {line}: there is no {what} `{name}`"),
        };
        let fails = |text: String, kind: ErrorKind| {
            let found = self.env.compile_expression_owned(text).and_then(|e| e.eval(()));
            found.is_err_and(|e| e.kind() == kind)
        };
        for (name, line) in &tags.filters {
            if fails(format!("'' | {name}"), ErrorKind::UnknownFilter) {
                return Err(unknown("filter", name, *line));
            }
        }
        for (name, line) in &tags.tests {
            if fails(format!("'' is {name}"), ErrorKind::UnknownTest) {
                return Err(unknown("test", name, *line));
            }
        }
        let template = self.env.get_template(NAME).map_err(|e| Broken { problem: problem(&e) })?;
        let free: BTreeSet<String> = template.undeclared_variables(false).into_iter().collect();
        for (name, line) in &tags.calls {
            if name == "strftime_now" {
                let problem = format!(
                    "line {line}: `strftime_now` gives the time of the run, so the same rows would give other text tomorrow"
                );
                return Err(Broken { problem });
            }
            let is_there = self.env.globals().any(|(global, _)| global == name.as_str());
            if free.contains(name) && !is_there {
                return Err(unknown("function", name, *line));
            }
        }
        Ok(())
    }
}

fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        env.set_syntax(syntax);
    }
    env.set_formatter(print);
    env.set_unknown_method_callback(method);
    env.add_filter("trim", trim);
    env.add_filter("string", |value: &Value| python_text(value));
    env.add_filter("tojson", tojson);
    env.add_function("raise_exception", |text: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, text))
    });
    env
}

fn problem(error: &Error) -> String {
    let text = match error.detail() {
        Some(detail) if error.kind() == ErrorKind::InvalidOperation => detail.to_owned(),
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    error.line().map_or(text.clone(), |line| format!("line {line}: {text}"))
}

fn print(out: &mut Output, _: &mut State, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => out.write_str(text)?,
        None if value.is_undefined() => {}
        None => out.write_str(&python_text(value))?,
    }
    Ok(())
}

/// A JSON value as templates see it.
pub(super) fn to_value(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), _, _) => Value::from(number),
            (None, Some(number), _) => Value::from(number),
            (None, None, float) => Value::from(float.unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(to_value).collect(),
        Json::Object(fields) => Value::from_pairs(fields.iter().map(|(k, v)| (k.as_str(), to_value(v)))),
    }
}

/// Python's `str` of a value.
fn python_text(value: &Value) -> String {
    match value.kind() {
        ValueKind::String => value.as_str().unwrap_or_default().to_owned(),
        ValueKind::None => "None".to_owned(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.to_owned(),
        ValueKind::Number => number(value),
        _ => value.to_string(),
    }
}

fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if !value.is_integer() => python_float(float),
        _ => value.to_string(),
    }
}

fn trim(value: &Value, chars: Option<&str>) -> String {
    let text = python_text(value);
    match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)).to_owned(),
        None => python::strip(&text).to_owned(),
    }
}

/// Strips as Python does where no characters are named; everything else as the compatibility layer.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let (Some(text), true) = (value.as_str(), args.is_empty()) {
        let stripped = match name {
            "strip" => python::strip(text),
            "lstrip" => text.trim_start_matches(python::is_space),
            "rstrip" => text.trim_end_matches(python::is_space),
            _ => return pycompat::unknown_method_callback(state, value, name, args),
        };
        return Ok(Value::from(stripped));
    }
    pycompat::unknown_method_callback(state, value, name, args)
}

/// `json.dumps(value, ensure_ascii=False, indent=None, sort_keys=False)`.
fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let layout = Layout {
        ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sorted: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent,
    };
    options.assert_all_used()?;
    let mut out = String::new();
    layout.write(&mut out, value, 0)?;
    if layout.ascii {
        out = escaped(&out);
    }
    Ok(Value::from_safe_string(out))
}

/// How JSON is laid out.
#[derive(Clone, Copy)]
struct Layout {
    ascii: bool,
    sorted: bool,
    indent: Option<usize>,
}

impl Layout {
    fn write(self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::Undefined => {
                return Err(Error::new(ErrorKind::InvalidOperation, "`tojson` of an undefined value"));
            }
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&number(value)),
            ValueKind::String => push_text(out, value.as_str().unwrap_or_default()),
            ValueKind::Map => self.map(out, value, depth)?,
            _ => self.list(out, value, depth)?,
        }
        Ok(())
    }

    fn list(self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.separate(out, &mut empty, depth + 1);
            self.write(out, &item, depth + 1)?;
        }
        self.end(out, empty, depth, ']');
        Ok(())
    }

    fn map(self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sorted {
            keys.sort();
        }
        out.push('{');
        let mut empty = true;
        for key in keys {
            self.separate(out, &mut empty, depth + 1);
            push_text(out, &python_text(&key));
            out.push_str(": ");
            self.write(out, &value.get_item(&key)?, depth + 1)?;
        }
        self.end(out, empty, depth, '}');
        Ok(())
    }

    /// Python's separators: `", "` on one line, `","` and a new line with an indent.
    fn separate(self, out: &mut String, empty: &mut bool, depth: usize) {
        if !std::mem::replace(empty, false) {
            out.push(',');
            if self.indent.is_none() {
                out.push(' ');
            }
        }
        self.line(out, depth);
    }

    fn end(self, out: &mut String, empty: bool, depth: usize, close: char) {
        if !empty {
            self.line(out, depth);
        }
        out.push(close);
    }

    fn line(self, out: &mut String, depth: usize) {
        if let Some(indent) = self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }
}

/// JSON text with everything outside of ASCII as `\u` escapes of UTF-16.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_ascii() {
            true => out.push(c),
            false => {
                let mut units = [0; 2];
                c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(source: &str, more: &[(&str, Value)]) -> Result<String, String> {
        let jinja = Jinja::new(source).map_err(|e| e.problem)?;
        let more = more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        jinja.render(&Input { more, ..Input::default() }).map_err(|e| e.problem)
    }

    #[test]
    fn values_print_as_python_prints_them() {
        let json: serde_json::Value = serde_json::from_str(r#"{"b": 2.0, "a": [1, null, "é<\n"]}"#).unwrap();
        let value = to_value(&json);
        let text = rendered(
            "{{ v | tojson }}|{{ v | tojson(indent=2, sort_keys=true) }}|{{ none }} {{ true }} {{ 1e16 }}",
            &[("v", value.clone())],
        );
        let expected = "{\"b\": 2.0, \"a\": [1, null, \"é<\\n\"]}|{\n  \"a\": [\n    1,\n    null,\n    \"é<\\n\"\n  ],\n  \"b\": 2.0\n}|None True 1e+16";
        assert_eq!(text.unwrap(), expected);
        assert_eq!(
            rendered("{{ v['a'][2] | tojson(ensure_ascii=true) }}", &[("v", value)]).unwrap(),
            "\"\\u00e9<\\n\""
        );
        assert_eq!(rendered("{{ ' \u{1f}a ' | trim }}{{ ' \u{1c}b'.strip() }}", &[]).unwrap(), "ab");
    }

    #[test]
    fn names_that_there_are_not_are_found_before_any_row() {
        for (source, expected) in [
            ("a\n{% if false %}{{ lookup(1) }}{% endif %}", "line 2: there is no function `lookup`"),
            ("{% if false %}{{ 'a' | shout }}{% endif %}", "line 1: there is no filter `shout`"),
            ("{% if false and x is weird %}{% endif %}", "line 1: there is no test `weird`"),
            ("\n\n{{ strftime_now('%d') }}", "line 3: `strftime_now` gives the time of the run"),
            ("{% if %}", "line 1: "),
        ] {
            let problem = rendered(source, &[]).unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        }
        let fine = "{% macro m(a) %}{{ a }}{% endmacro %}{{ m('x | y(') }}{{ undefined_name }}{{ namespace(a=1).a }}{{ ')' if x is not defined and x is not none }}";
        assert_eq!(rendered(fine, &[]).unwrap(), "x | y(1)");
    }

    #[test]
    fn what_a_template_raises_is_its_own_text() {
        assert_eq!(rendered("\n{{ raise_exception('no tools') }}", &[]).unwrap_err(), "line 2: no tools");
    }
}
