//! Jinja's tests.

use super::ast::Comparison;
use super::operators::{compare, contains, undefined};
use super::print::text;
use super::value::{Kind, Outcome, Value, equal};

/// Applies a test.
///
/// # Errors
/// Tests that aren't supported, by name, and values that Python refuses to compare.
pub(super) fn test(name: &str, input: &Value, args: &[Value]) -> Outcome<bool> {
    let argument = || args.first().ok_or_else(|| format!("the test '{name}' needs a value"));
    let whole = |value: &Value| match value {
        Value::Undefined(name) => Err(undefined(name)),
        other => other.as_int().ok_or_else(|| {
            format!("the test '{name}' needs an integer, not {}", other.type_name())
        }),
    };
    let against = |comparison| compare(input, comparison, argument()?);
    Ok(match name {
        "defined" => !input.is_undefined(),
        "undefined" => input.is_undefined(),
        "none" => matches!(input, Value::None),
        "boolean" => matches!(input, Value::Bool(_)),
        "true" => matches!(input, Value::Bool(true)),
        "false" => matches!(input, Value::Bool(false)),
        "integer" => matches!(input, Value::Int(_)),
        "float" => matches!(input, Value::Float(_)),
        "number" => matches!(input, Value::Int(_) | Value::Float(_) | Value::Bool(_)),
        "string" => matches!(input, Value::Str(_)),
        "mapping" => matches!(input, Value::Dict(_)),
        "sequence" => match input {
            Value::Str(_) | Value::Dict(_) | Value::Undefined(_) => true,
            Value::Seq(seq) => matches!(seq.kind, Kind::List | Kind::Tuple | Kind::Range),
            _ => false,
        },
        "iterable" => matches!(
            input,
            Value::Str(_) | Value::Seq(_) | Value::Dict(_) | Value::Undefined(_) | Value::Loop(_)
        ),
        "callable" => {
            matches!(
                input,
                Value::Function(_)
                    | Value::Method(_)
                    | Value::Macro(_)
                    | Value::Joiner(_)
                    | Value::Loop(_)
            )
        }
        "escaped" => false,
        "odd" => whole(input)?.rem_euclid(2) == 1,
        "even" => whole(input)?.rem_euclid(2) == 0,
        "divisibleby" => {
            let by = whole(argument()?)?;
            let rest = whole(input)?.checked_rem(by);
            rest.ok_or("integer modulo by zero")? == 0
        }
        "lower" => {
            let own = text(input)?;
            own.chars().any(char::is_lowercase) && !own.chars().any(char::is_uppercase)
        }
        "upper" => {
            let own = text(input)?;
            own.chars().any(char::is_uppercase) && !own.chars().any(char::is_lowercase)
        }
        "in" => contains(argument()?, input)?,
        "==" | "eq" | "equalto" => against(Comparison::Equal)?,
        "!=" | "ne" => against(Comparison::NotEqual)?,
        "<" | "lt" | "lessthan" => against(Comparison::Less)?,
        "<=" | "le" => against(Comparison::LessEqual)?,
        ">" | "gt" | "greaterthan" => against(Comparison::Greater)?,
        ">=" | "ge" => against(Comparison::GreaterEqual)?,
        "sameas" => {
            let other = argument()?;
            input.type_name() == other.type_name() && equal(input, other)
        }
        other => return Err(format!("the test '{other}' isn't supported")),
    })
}
