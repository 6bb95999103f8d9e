//! Functions that a template finds: Jinja's, and those that transformers adds.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::rc::Rc;

use chrono::format::{Item, StrftimeItems};

use super::print::text;
use super::render::{Called, Renderer};
use super::value::{Dict, Kind, Outcome, Value, store};

const NAMES: [&str; 7] =
    ["range", "dict", "namespace", "cycler", "joiner", "raise_exception", "strftime_now"];
/// Jinja's bound on `range` in a sandbox.
const LONGEST: i128 = 100_000;

pub(super) fn named(name: &str) -> Option<&'static str> {
    NAMES.into_iter().find(|own| *own == name)
}

pub(super) fn call(renderer: &mut Renderer<'_>, name: &str, called: Called) -> Outcome<Value> {
    match name {
        "range" => {
            let given: Vec<i128> = called
                .list
                .iter()
                .map(|it| {
                    it.as_int()
                        .ok_or_else(|| format!("range needs integers, not {}", it.type_name()))
                })
                .collect::<Outcome<_>>()?;
            let (start, stop, step) = match given[..] {
                [stop] => (0, stop, 1),
                [start, stop] => (start, stop, 1),
                [start, stop, step] => (start, stop, step),
                _ => {
                    return Err(format!(
                        "range takes 1 to 3 arguments, and {} are given",
                        given.len()
                    ));
                }
            };
            if step == 0 {
                return Err("range() arg 3 must not be zero".to_owned());
            }
            let span =
                if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
            let count = (span.max(0) / step.abs()) + i128::from(span.max(0) % step.abs() != 0);
            if count > LONGEST {
                return Err(format!("a range has more than {LONGEST} numbers"));
            }
            renderer.step(count as usize / 4)?;
            Value::seq(Kind::Range, (0..count).map(|at| Value::Int(start + at * step)).collect())
        }
        "dict" | "namespace" => {
            let mut made = Dict::default();
            for from in &called.list {
                match from {
                    Value::Dict(dict) => {
                        for (key, value) in &dict.entries {
                            made.insert(key.clone(), value.clone())?;
                        }
                    }
                    pairs => {
                        for pair in pairs.iterate()? {
                            let [key, value] = <[Value; 2]>::try_from(pair.iterate()?)
                                .map_err(|_| "a dictionary is made of pairs".to_owned())?;
                            made.insert(key, value)?;
                        }
                    }
                }
            }
            for (key, value) in called.named {
                made.insert(Value::from(key), value)?;
            }
            if name == "dict" {
                return Ok(Value::Dict(Rc::new(made)));
            }
            let of = RefCell::new(Dict::default());
            for (key, value) in made.entries {
                store(&of, key.as_str().ok_or("a namespace's names are texts")?, value)?;
            }
            Ok(Value::Namespace(Rc::new(of)))
        }
        "cycler" if !called.list.is_empty() => {
            Ok(Value::Cycler(Rc::new((called.list, Cell::new(0)))))
        }
        "joiner" => {
            let [separator] = called.by_name("joiner", ["sep"])?;
            let separator = separator.unwrap_or_else(|| Value::from(", "));
            Ok(Value::Joiner(Rc::new((separator, Cell::new(false)))))
        }
        "raise_exception" => {
            let [message] = called.by_name("raise_exception", ["message"])?;
            Err(text(&message.ok_or("raise_exception needs a message")?)?)
        }
        "strftime_now" => {
            let [format] = called.by_name("strftime_now", ["format"])?;
            let format = format.ok_or("strftime_now needs a format")?;
            now(renderer.date, format.as_str().ok_or("strftime_now needs a text")?).map(Value::from)
        }
        other => Err(format!("{other} needs arguments")),
    }
}

fn now(date: chrono::NaiveDate, format: &str) -> Outcome<String> {
    if StrftimeItems::new(format).any(|item| matches!(item, Item::Error)) {
        return Err(format!("strftime_now doesn't know the format {format:?}"));
    }
    let mut text = String::new();
    let time = date.and_time(chrono::NaiveTime::MIN);
    write!(text, "{}", time.format(format))
        .map_err(|_| "strftime_now was asked for a time zone".to_owned())?;
    Ok(text)
}
