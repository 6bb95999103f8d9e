//! Formulas as text of the two kernel languages; the only file that knows both.
//!
//! A formula becomes a list of `let` bindings, one a distinct sub-formula in the order of first use, so
//! that shared parts are computed once and the text of a formula never changes from run to run. The
//! functions `tr_…` are small helpers that each language's shared file defines.

use std::collections::HashMap;
use std::fmt::Write;

use crate::expr::{Binary, Expr, Term, Unary};
use crate::random::KEY_WORDS;
use crate::types::DType;

/// A kernel language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// WebGPU Shading Language.
    Wgsl,
    /// CUDA C++.
    Cuda,
}

/// How exact the functions of formulas are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exact {
    /// As f32 is.
    Single,
    /// As what is rounded to bf16 needs, where a language has faster functions for that.
    Short,
}

impl Exact {
    /// For formulas whose results are all stored so.
    pub fn of(stored: impl IntoIterator<Item = DType>) -> Self {
        if stored.into_iter().all(|dtype| dtype == DType::BF16) {
            Self::Short
        } else {
            Self::Single
        }
    }
}

/// Statements that compute `formulas`, and the name or literal that holds each result. Input `i` is read
/// as `in{i}`, random numbers as `tr_random(stream)`; both are in scope where the text is placed.
pub fn print(formulas: &[Expr], exact: Exact, dialect: Dialect) -> (String, Vec<String>) {
    let mut printer = Printer { dialect, exact, text: String::new(), named: HashMap::new() };
    let results = formulas.iter().map(|formula| printer.value(formula)).collect();
    (printer.text, results)
}

/// A function of `arguments` numbers, `in0` and so on, that a formula reads some of.
pub fn print_function(
    name: &str,
    arguments: usize,
    formula: &Expr,
    exact: Exact,
    dialect: Dialect,
) -> String {
    let (body, results) = print(std::slice::from_ref(formula), exact, dialect);
    let (argument, ends) = match dialect {
        Dialect::Wgsl => ("in{}: f32", ("fn", " -> f32")),
        Dialect::Cuda => ("float in{}", ("__device__ float", "")),
    };
    let arguments: Vec<String> =
        (0..arguments).map(|index| argument.replace("{}", &index.to_string())).collect();
    let (begins, ends) = ends;
    let mut text = format!("{begins} {name}({}){ends} {{\n", arguments.join(", "));
    body.lines().for_each(|line| text += &format!("    {line}\n"));
    text + &format!("    return {};\n}}\n", results.join(""))
}

/// How a map reads one input of its formulas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Its own element for each.
    Each {
        /// Formula input.
        index: usize,
    },
    /// One for all.
    One {
        /// Formula input.
        index: usize,
    },
    /// Again from the start after the last, `period{index}` elements; four at a time where `aligned`.
    Repeated {
        /// Formula input.
        index: usize,
        /// Whether the period is a multiple of four.
        aligned: bool,
    },
    /// One for all, from a slot of `numbers`.
    Collected {
        /// Formula input.
        index: usize,
        /// Position in `numbers`.
        slot: usize,
    },
}

impl Read {
    fn index(&self) -> usize {
        match *self {
            Self::Each { index }
            | Self::One { index }
            | Self::Repeated { index, .. }
            | Self::Collected { index, .. } => index,
        }
    }
}

/// Names of the lanes of four elements.
const LANES: [&str; 4] = ["x", "y", "z", "w"];

/// The part of a map kernel that is its own: the formulas of one element, and `tr_four`, which applies them to
/// the four from `at` on. Output `i` goes to the tensor named `writes[i]`. Random numbers are of the whole tensor's elements where
/// these are `of_shard`, `params.shard` of each rank's.
pub fn print_map(
    formulas: &[Expr],
    (reads, writes): (&[Read], &[String]),
    of_shard: bool,
    exact: Exact,
    dialect: Dialect,
) -> String {
    let (body, results) = print(formulas, exact, dialect);
    let map = MapText {
        body,
        results,
        reads,
        writes,
        names: reads.iter().map(|read| format!("in{}", read.index())).collect(),
        random: formulas.iter().any(Expr::is_random),
        of_shard,
    };
    match dialect {
        Dialect::Wgsl => map.wgsl(),
        Dialect::Cuda => map.cuda(),
    }
}

/// What is printed of a map.
struct MapText<'a> {
    body: String,
    results: Vec<String>,
    reads: &'a [Read],
    writes: &'a [String],
    /// Of the formulas' inputs.
    names: Vec<String>,
    random: bool,
    of_shard: bool,
}

impl MapText<'_> {
    fn listed(&self, each: impl Fn(&String) -> String) -> String {
        self.names.iter().map(each).collect::<Vec<_>>().join(", ")
    }

    fn fields(&self, field: impl Fn(usize) -> String) -> String {
        (0..self.results.len()).map(field).collect::<Vec<_>>().join(", ")
    }

    fn wgsl(&self) -> String {
        let fields = self.fields(|i| format!("r{i}: f32"));
        let mut text = format!("struct Results {{ {fields} }}\n");
        let inputs = self.listed(|name| format!("{name}: f32"));
        text += &format!("fn tr_formulas({inputs}) -> Results {{\n");
        self.body.lines().for_each(|line| text += &format!("    {line}\n"));
        text += &format!("    return Results({});\n}}\n", self.results.join(", "));
        text += "fn tr_four(at: u32, count: u32) {\n";
        text += "    let first = params.first + at;\n";
        for (read, name) in self.reads.iter().zip(&self.names) {
            let value = match *read {
                Read::Each { .. } => format!("load4_{name}(at)"),
                Read::One { .. } => format!("vec4<f32>(load_{name}(0u))"),
                Read::Collected { slot, .. } => format!("vec4<f32>(load_numbers({slot}u))"),
                Read::Repeated { index, aligned: true } => {
                    format!("load4_{name}(first % params.period{index})")
                }
                Read::Repeated { index, aligned: false } => {
                    let lanes: Vec<String> = (0..4)
                        .map(|lane| {
                            format!("load_{name}((first + {lane}u) % params.period{index})")
                        })
                        .collect();
                    format!("vec4<f32>({})", lanes.join(", "))
                }
            };
            text += &format!("    let {name} = {value};\n");
        }
        for (lane, axis) in LANES.iter().enumerate() {
            if self.random {
                // A browser's tab has no shards.
                let before = match self.of_shard && cfg!(not(target_family = "wasm")) {
                    true => format!("bits_key({KEY_WORDS}u) * params.shard + "),
                    false => String::new(),
                };
                text += &format!("    tr_draw_for({before}first + {lane}u);\n");
            }
            let arguments = self.listed(|name| format!("{name}.{axis}"));
            text += &format!("    let lane{lane} = tr_formulas({arguments});\n");
        }
        for (index, name) in self.writes.iter().enumerate() {
            let lanes: Vec<String> = (0..4).map(|lane| format!("lane{lane}.r{index}")).collect();
            text += &format!("    store4_{name}(at, vec4<f32>({}), count);\n", lanes.join(", "));
        }
        text + "}\n"
    }

    fn cuda(&self) -> String {
        let fields: String = (0..self.results.len()).map(|i| format!("float r{i}; ")).collect();
        let mut text = format!("struct Results {{ {fields}}};\n");
        let inputs: String = self.names.iter().map(|name| format!(", float {name}")).collect();
        text += "__device__ Results tr_formulas(const Args &args, unsigned element";
        text += &format!("{inputs}) {{\n");
        if self.random {
            text += "    const auto tr_random = [&](unsigned stream) {\n";
            let before = match self.of_shard && cfg!(not(target_family = "wasm")) {
                true => format!("args.key.raw({KEY_WORDS}) * args.shard + "),
                false => String::new(),
            };
            text += &format!(
                "        return tr_uniform(args.key, stream, {before}element);\n    }};\n"
            );
        }
        self.body.lines().for_each(|line| text += &format!("    {line}\n"));
        text += &format!("    return Results{{{}}};\n}}\n", self.results.join(", "));
        text += "__device__ void tr_four(const Args &args, unsigned at, unsigned count) {\n";
        text += "    const unsigned first = args.first + at;\n";
        for (read, name) in self.reads.iter().zip(&self.names) {
            let value = match *read {
                Read::Each { .. } => format!("args.{name}.load4(at)"),
                Read::One { .. } => format!("four(args.{name}.load(0))"),
                Read::Collected { slot, .. } => format!("four(args.numbers.load({slot}))"),
                Read::Repeated { index, aligned: true } => {
                    format!("args.{name}.load4(first % args.period{index})")
                }
                Read::Repeated { index, aligned: false } => {
                    let lanes: Vec<String> = (0..4)
                        .map(|lane| {
                            format!("args.{name}.load((first + {lane}) % args.period{index})")
                        })
                        .collect();
                    format!("Four{{{}}}", lanes.join(", "))
                }
            };
            text += &format!("    const Four {name} = {value};\n");
        }
        for (lane, axis) in LANES.iter().enumerate() {
            let arguments: String =
                self.names.iter().map(|name| format!(", {name}.{axis}")).collect();
            text += &format!(
                "    const Results lane{lane} = tr_formulas(args, first + {lane}{arguments});\n"
            );
        }
        for (index, name) in self.writes.iter().enumerate() {
            let lanes: Vec<String> = (0..4).map(|lane| format!("lane{lane}.r{index}")).collect();
            text += &format!("    args.{name}.store4(at, Four{{{}}}, count);\n", lanes.join(", "));
        }
        text + "}\n"
    }
}

struct Printer {
    exact: Exact,
    dialect: Dialect,
    text: String,
    /// Right-hand side of a binding → its name.
    named: HashMap<String, String>,
}

impl Printer {
    fn value(&mut self, formula: &Expr) -> String {
        let right = match formula.term() {
            Term::Const(value) => return self.literal(*value),
            Term::Input(index) => return format!("in{index}"),
            Term::Random(stream) => format!("tr_random({stream}u)"),
            Term::Unary(function, a) => {
                let a = self.value(a);
                self.unary(*function, &a)
            }
            Term::Binary(function, a, b) => match self.joined(*function, a, b) {
                Some([factor, other, sum]) => format!("__fmaf_rn({factor}, {other}, {sum})"),
                None => {
                    let (a, b) = (self.value(a), self.value(b));
                    self.binary(*function, &a, &b)
                }
            },
            Term::Select(condition, yes, no) => {
                let condition = self.value(condition);
                let (yes, no) = (self.value(yes), self.value(no));
                match self.dialect {
                    Dialect::Wgsl => format!("select({no}, {yes}, {condition} != 0.0)"),
                    Dialect::Cuda => format!("({condition} != 0.0f ? {yes} : {no})"),
                }
            }
        };
        if let Some(name) = self.named.get(&right) {
            return name.clone();
        }
        let name = format!("v{}", self.named.len());
        let keyword = match self.dialect {
            Dialect::Wgsl => "let",
            Dialect::Cuda => "const float",
        };
        // Writing to a String can't fail.
        let _ = writeln!(self.text, "{keyword} {name} = {right};");
        self.named.insert(right, name.clone());
        name
    }

    /// A sum or difference of a product, and x · (1 - x), as two factors and what is added to their product before it's rounded. The formula
    /// alone decides, whatever else is printed: so it has the same bits everywhere.
    fn joined(&mut self, function: Binary, a: &Expr, b: &Expr) -> Option<[String; 3]> {
        // A browser's tab prints nothing for CUDA.
        let prints_short = self.dialect == Dialect::Cuda && self.exact == Exact::Short;
        if cfg!(target_family = "wasm") || !prints_short {
            return None;
        }
        let negative = |factor: String| format!("-{factor}");
        match (function, a.term(), b.term()) {
            (Binary::Add, _, Term::Binary(Binary::Mul, x, y)) => {
                Some([x, y, a].map(|part| self.value(part)))
            }
            (Binary::Add, Term::Binary(Binary::Mul, x, y), _) => {
                Some([x, y, b].map(|part| self.value(part)))
            }
            (Binary::Sub, _, Term::Binary(Binary::Mul, x, y)) => {
                let [x, y, a] = [x, y, a].map(|part| self.value(part));
                Some([negative(x), y, a])
            }
            (Binary::Sub, Term::Binary(Binary::Mul, x, y), _) => {
                let [x, y, b] = [x, y, b].map(|part| self.value(part));
                Some([x, y, negative(b)])
            }
            (Binary::Mul, _, Term::Binary(Binary::Sub, one, same))
                if one.as_const() == Some(1.0) && a == same =>
            {
                let a = self.value(a);
                Some([negative(a.clone()), a.clone(), a])
            }
            _ => None,
        }
    }

    /// Nine digits are enough for every f32 to come back as itself.
    fn literal(&self, value: f64) -> String {
        let single = value as f32;
        if single.is_finite() {
            let digits = format!("{single:?}");
            let digits = if digits.contains(['.', 'e']) { digits } else { format!("{digits}.0") };
            return if single < 0.0 { format!("({digits}f)") } else { digits + "f" };
        }
        let bits = single.to_bits();
        match self.dialect {
            // A constant that isn't finite is refused; a call isn't constant.
            Dialect::Wgsl => format!("tr_from_bits(0x{bits:08x}u)"),
            Dialect::Cuda => format!("__uint_as_float(0x{bits:08x}u)"),
        }
    }

    fn unary(&self, function: Unary, a: &str) -> String {
        let cuda = self.dialect == Dialect::Cuda;
        let call = |wgsl: &str, cu: &str| format!("{}({a})", if cuda { cu } else { wgsl });
        match function {
            Unary::Neg => format!("(-{a})"),
            Unary::Exp => call("exp", "expf"),
            Unary::Ln => call("log", "logf"),
            Unary::Sqrt => call("sqrt", "sqrtf"),
            // WGSL's tanh may overflow for large arguments on some adapters.
            Unary::Tanh if self.exact == Exact::Short => call("tr_tanh", "tr_short_tanh"),
            Unary::Tanh => call("tr_tanh", "tanhf"),
            Unary::Sigmoid if self.exact == Exact::Short => call("tr_sigmoid", "tr_short_sigmoid"),
            Unary::Sigmoid => call("tr_sigmoid", "tr_sigmoid"),
            Unary::Erf => call("tr_erf", "erff"),
            Unary::Sin => call("tr_sin", "sinf"),
            Unary::Cos => call("tr_cos", "cosf"),
            Unary::Abs => call("abs", "fabsf"),
            Unary::Sign => call("sign", "tr_sign"),
            Unary::Floor => call("floor", "floorf"),
            Unary::IsFinite => call("tr_is_finite", "tr_is_finite"),
            Unary::HighHalf => call("tr_high_half", "tr_high_half"),
            Unary::LowHalf => call("tr_low_half", "tr_low_half"),
        }
    }

    fn binary(&self, function: Binary, a: &str, b: &str) -> String {
        let cuda = self.dialect == Dialect::Cuda;
        let call = |wgsl: &str, cu: &str| format!("{}({a}, {b})", if cuda { cu } else { wgsl });
        match function {
            Binary::Add => format!("({a} + {b})"),
            Binary::Sub => format!("({a} - {b})"),
            // Multiplied and rounded by itself where the formula doesn't join it: a compiler that joins it with a sum in one place and
            // not in another, as in a matmul's epilogue and in a map, would give other bits to the same formula.
            Binary::Mul if cuda => format!("__fmul_rn({a}, {b})"),
            Binary::Mul => format!("({a} * {b})"),
            Binary::Div => format!("({a} / {b})"),
            Binary::Max => call("max", "fmaxf"),
            Binary::Min => call("min", "fminf"),
            Binary::Pow => call("pow", "powf"),
            Binary::Less if cuda => format!("({a} < {b} ? 1.0f : 0.0f)"),
            Binary::Less => format!("select(0.0, 1.0, {a} < {b})"),
            Binary::JoinHalves => call("tr_join_halves", "tr_join_halves"),
            Binary::StochasticHalf => call("tr_stochastic_half", "tr_stochastic_half"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{constant, input};

    fn silu_slope() -> Expr {
        (input(0) * input(0).sigmoid()).derivative(0)
    }

    #[test]
    fn shared_parts_are_bound_once() {
        let (text, results) = print(&[silu_slope()], Exact::Single, Dialect::Wgsl);
        assert_eq!(
            text,
            "let v0 = tr_sigmoid(in0);\n\
             let v1 = (1.0f - v0);\n\
             let v2 = (v0 * v1);\n\
             let v3 = (in0 * v2);\n\
             let v4 = (v0 + v3);\n"
        );
        assert_eq!(results, ["v4"]);
    }

    #[test]
    fn cuda_declares_floats() {
        let clipped = input(0).less(constant(-2.5)).select(constant(1.0), input(1).sqrt());
        let (text, results) = print(&[clipped, input(1)], Exact::Single, Dialect::Cuda);
        assert_eq!(
            text,
            "const float v0 = (in0 < (-2.5f) ? 1.0f : 0.0f);\n\
             const float v1 = sqrtf(in1);\n\
             const float v2 = (v0 != 0.0f ? 1.0f : v1);\n"
        );
        assert_eq!(results, ["v2", "in1"]);
    }

    /// Compilers for GPUs join a product and a sum to one rounding where they see both, and what they see depends on what is
    /// around a formula.
    #[test]
    fn no_product_of_a_cuda_formula_can_be_joined_with_a_sum() {
        let (text, _) =
            print(&[silu_slope(), input(0) * input(1) + input(2)], Exact::Single, Dialect::Cuda);
        assert!(text.contains("__fmul_rn(in0, in1)") && !text.contains('*'), "{text}");
    }

    #[test]
    fn products_of_what_is_rounded_to_bf16_are_joined_with_sums_by_the_formula_alone() {
        let of = |formulas: &[Expr]| print(formulas, Exact::Short, Dialect::Cuda).0;
        assert_eq!(
            of(&[silu_slope()]),
            "const float v0 = tr_short_sigmoid(in0);\n\
             const float v1 = __fmaf_rn(-v0, v0, v0);\n\
             const float v2 = __fmaf_rn(in0, v1, v0);\n"
        );
        let product = || input(0) * input(1);
        let sum = "__fmaf_rn(in0, in1, in2)";
        for of in [of(&[input(2) + product()]), of(&[product() + input(2), product()])] {
            assert!(of.contains(sum), "{of}");
        }
        assert!(of(&[product() - input(2)]).contains("__fmaf_rn(in0, in1, -in2)"));
        assert!(of(&[input(2) - product()]).contains("__fmaf_rn(-in0, in1, in2)"));
    }

    #[test]
    fn what_is_rounded_to_bf16_takes_shorter_functions_on_cuda_alone() {
        let of = |stored: &[DType], dialect| {
            print(&[input(0).tanh()], Exact::of(stored.iter().copied()), dialect).0
        };
        assert!(of(&[DType::BF16], Dialect::Cuda).contains("tr_short_tanh(in0)"));
        assert!(of(&[DType::BF16, DType::F32], Dialect::Cuda).contains(" tanhf(in0)"));
        assert!(of(&[DType::F16], Dialect::Cuda).contains(" tanhf(in0)"));
        assert!(of(&[DType::BF16], Dialect::Wgsl).contains("tr_tanh(in0)"));
    }

    #[test]
    fn constants_come_back_as_themselves() {
        let (_, results) = print(&[constant(1e-8), constant(3.0)], Exact::Single, Dialect::Wgsl);
        assert_eq!(results, ["1e-8f", "3.0f"]);
        let (_, results) = print(&[constant(f64::INFINITY)], Exact::Single, Dialect::Cuda);
        assert_eq!(results, ["__uint_as_float(0x7f800000u)"]);
    }
}
