//! Tensors of more elements than 32 bits count: their launches, by arithmetic alone.

use std::collections::BTreeMap;

use tightrope_backend_cuda::limits;
use tightrope_core::activation::gelu_tanh;
use tightrope_core::expr::{input, random};
use tightrope_core::launch::{Launch, Limits, MOST_ELEMENTS, Operand, Source, Word};
use tightrope_core::ops::{
    Embedding, FusedMatMul, LayerNorm, LinearCrossEntropy, LinearCrossEntropyGrad, Map, MatMul,
    Reduce, Softmax,
};
use tightrope_core::{DType, Op, Rule, Type};

/// More than 32 bits count, of GPT-2's vocabulary in one piece.
const ROWS: usize = 128 * 1024;
const VOCAB: usize = 50304;
const CHANNELS: usize = 768;

fn all_limits() -> Vec<(&'static str, Limits)> {
    let narrow = limits();
    vec![
        ("f32", narrow.clone().with_cuda(|own| own.tensor_cores = &[])),
        ("tensor cores", narrow.clone()),
        ("TF32", narrow.clone().with_cuda(|own| own.tf32 = true)),
        ("warpgroups", narrow.with_cuda(|own| own.wgmma = Some(132))),
    ]
}

fn launches(limits: &Limits, op: &Op, inputs: &[Type]) -> (Vec<Launch>, Vec<Type>) {
    let inputs: Vec<&Type> = inputs.iter().collect();
    let outputs = op.infer(&inputs).expect("a valid op");
    let of = op.launch(limits, &inputs, &outputs.iter().collect::<Vec<_>>());
    (of.unwrap_or_else(|words| panic!("{}: {words}", op.name())).list, outputs)
}

fn param(launch: &Launch, name: &str) -> u64 {
    let found = launch.params.iter().find(|(own, _)| own == name);
    match found.unwrap_or_else(|| panic!("{} has no {name}", launch.entry)).1 {
        Word::U32(value) => value.into(),
        Word::F32(_) => panic!("{name} is a real number"),
    }
}

fn operand<'a>(launch: &'a Launch, name: &str) -> &'a Operand {
    let found = launch.operands.iter().find(|operand| operand.name == name);
    found.unwrap_or_else(|| panic!("{} has no {name}", launch.entry))
}

/// The last element that each launch of a matmul reads or writes of each matrix, computed in as many bits as it takes, lies
/// within what it binds.
fn hold_matmul(launch: &Launch) {
    let [batch, m, n, k] = ["batch", "m", "n", "k"].map(|name| param(launch, name));
    let constant = |name| launch.constants.iter().find(|(own, _)| *own == name).unwrap().1 == 1;
    let sides = |transposed, [rows, columns]: [u64; 2]| {
        if transposed { [columns, rows] } else { [rows, columns] }
    };
    let adds_slices = launch.constants.contains(&("SLICED", 1)) || launch.entry == "add_slices";
    let slices = if adds_slices { 1 } else { k.div_ceil(param(launch, "slice")) };
    for (name, [rows, columns], matrices) in [
        ("lhs", sides(constant("LHS_TRANSPOSED"), [m, k]), batch),
        ("rhs", sides(constant("RHS_TRANSPOSED"), [k, n]), batch),
        ("out", [m, n], batch * slices),
    ] {
        if launch.entry == "add_slices" && name != "out" {
            continue;
        }
        let of = |what: &str| param(launch, &format!("{name}_{what}"));
        let last =
            of("first") + (matrices - 1) * of("stride") + (rows - 1) * of("row") + columns - 1;
        let bound = operand(launch, name).place.elements;
        assert!(last < bound, "{}: element {last} of {bound} of {name}", launch.entry);
    }
}

/// As its kernel counts: a row's logits and its gradient, which lies at the same bytes in narrower elements.
fn hold_loss(launch: &Launch) {
    let (rows, padded) = (param(launch, "rows"), param(launch, "padded"));
    let (logits, gradient) = (operand(launch, "logits").place, operand(launch, "gradient").place);
    let apart = (DType::F32.size() / gradient.dtype.size()) as u64;
    let last_row = launch.groups.end - 1;
    assert_eq!(last_row + 1, rows);
    let last = apart * last_row * padded + padded - 1;
    assert!(last < gradient.elements && last <= u32::MAX.into(), "element {last} of the gradient");
    assert!(last_row * padded + padded <= logits.elements);
}

/// Every element of each output is in what some launch binds, and none that is written once in two of them.
fn hold_outputs(launches: &[Launch], outputs: &[Type], once: bool) {
    for (index, output) in outputs.iter().enumerate() {
        let mut bound: BTreeMap<u64, u64> = BTreeMap::new();
        for operand in launches.iter().flat_map(|launch| &launch.operands) {
            if operand.place.source == Source::Output(index) {
                let end = bound.entry(operand.place.first).or_default();
                *end = (*end).max(operand.place.first + operand.place.elements);
            }
        }
        let mut covered = 0;
        for (first, end) in bound {
            assert!(first <= covered, "elements {covered} to {first} are in no launch");
            assert!(!once || first == covered, "element {first} is in two launches");
            covered = covered.max(end);
        }
        assert_eq!(covered, output.elements() as u64);
    }
}

fn hold(op: impl Into<Op>, inputs: &[Type], once: bool) {
    let op = op.into();
    for (what, limits) in all_limits() {
        let (list, outputs) = launches(&limits, &op, inputs);
        println!("{} with {what}: {} launches", op.name(), list.len());
        for launch in &list {
            for operand in &launch.operands {
                let (name, elements) = (&operand.name, operand.place.elements);
                assert!(elements <= MOST_ELEMENTS, "{}: {elements} of {name}", launch.entry);
            }
            assert!(launch.groups.end <= 1 << 32 && launch.too_large.is_none());
            match (launch.kernel, launch.entry) {
                ("matmul" | "matmul_mma" | "matmul_wgmma", _) => hold_matmul(launch),
                ("cross_entropy", "normalise") => hold_loss(launch),
                ("map", _) => {
                    assert!(param(launch, "first") + param(launch, "elements") <= 1 << 32);
                }
                _ => {}
            }
        }
        hold_outputs(&list, &outputs, once);
    }
}

fn ty(dtype: DType, shape: &[usize]) -> Type {
    Type::new(dtype, shape)
}

#[test]
fn a_loss_in_one_piece_stays_within_32_bits() {
    for dtype in [DType::F32, DType::BF16] {
        for rows in [64 * 1024, ROWS] {
            let loss = LinearCrossEntropy { vocab: 50257, chunk: rows, cap: None };
            let (x, w) = (ty(dtype, &[rows, CHANNELS]), ty(dtype, &[VOCAB, CHANNELS]));
            let inputs = [x, w, ty(DType::I32, &[rows]), ty(DType::F32, &[1])];
            hold(loss.clone(), &inputs[..3], false);
            hold(LinearCrossEntropyGrad { loss, weight: true, accumulate: false }, &inputs, false);
        }
    }
}

#[test]
fn matmuls_beyond_32_bits_are_cut() {
    for dtype in [DType::F32, DType::BF16] {
        let (x, w) = (ty(dtype, &[ROWS, CHANNELS]), ty(dtype, &[VOCAB, CHANNELS]));
        let logits = ty(dtype, &[ROWS, VOCAB]);
        hold(MatMul::linear(false, dtype), &[x.clone(), w.clone()], false);
        hold(MatMul::new(dtype), &[logits.clone(), w.clone()], false);
        let transposed = MatMul { transpose_lhs: true, ..MatMul::new(dtype) };
        hold(transposed.clone(), &[logits.clone(), x.clone()], false);
        let activated = FusedMatMul {
            matmul: MatMul::linear(false, dtype),
            formula: Some(gelu_tanh(input(0))),
            keeps_matmul: true,
            lhs_sums: None,
        };
        hold(activated, &[x.clone(), w], false);
        let summed = FusedMatMul {
            matmul: transposed,
            formula: None,
            keeps_matmul: false,
            lhs_sums: Some(dtype),
        };
        hold(summed, &[logits, x], false);
        // A stack of matrices, each of which is counted, though not all of them together.
        let (left, right) = (ty(dtype, &[96, 8192, 64]), ty(dtype, &[96, 64, 8192]));
        hold(MatMul { batch: true, ..MatMul::new(dtype) }, &[left, right], false);
    }
}

#[test]
fn rows_beyond_32_bits_are_cut() {
    use DType::{BF16, F32, I32};
    let rows = 6 << 20;
    let x = ty(BF16, &[rows, CHANNELS]);
    let (gain, bias) = (ty(F32, &[CHANNELS]), ty(F32, &[CHANNELS]));
    assert!(x.elements() as u64 > 1 << 32);
    hold(Map::new(gelu_tanh(input(0)), BF16), std::slice::from_ref(&x), true);
    hold(Map::new(input(0) + input(1), BF16), &[x.clone(), gain.clone()], true);
    hold(Softmax, std::slice::from_ref(&x), true);
    hold(LayerNorm { eps: 1e-5 }, &[x.clone(), gain, bias], true);
    hold(Reduce::to_suffix(vec![CHANNELS], F32), std::slice::from_ref(&x), false);
    hold(Embedding, &[ty(BF16, &[VOCAB, CHANNELS]), ty(I32, &[rows])], true);
}

#[test]
fn what_cannot_be_cut_is_refused() {
    // Random numbers are drawn by an element's index, which has 32 bits.
    let x = ty(DType::BF16, &[6 << 20, CHANNELS]);
    let key = ty(DType::U32, &[4]);
    let op: Op = Map::new(random(1) + input(0), DType::BF16).into();
    let inputs = [&x, &key];
    let outputs = op.infer(&inputs).expect("a valid op");
    let refused = op.launch(&limits(), &inputs, &outputs.iter().collect::<Vec<_>>());
    let words = refused.expect_err("more elements than numbers");
    assert!(words.contains("map.elements") && words.contains("32 bits"), "{words}");
}
