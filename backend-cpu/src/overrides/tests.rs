//! Scratch of ops that work in pieces, on every instruction set: also those that this processor lacks.

use tightrope_core::ops::{
    LinearCrossEntropy, LinearCrossEntropyGrad, LinearDistillation, LinearDistillationGrad,
};
use tightrope_core::{DType, Op, Type};

use super::matmuls::needs_of_pieces;
use super::scratch_bytes;
use crate::draws::Draws;
use crate::isa::Level;

/// A loss of any kind, and the types of what it reads.
fn loss(draws: &mut Draws) -> (Op, Vec<Type>) {
    let size = |draws: &mut Draws| {
        let most = draws.one_of(&[9, 130, 1100, 7000]);
        draws.up_to(most)
    };
    let dtype = draws.one_of(&[DType::F32, DType::BF16, DType::F16]);
    let (rows, columns, vocab) = (size(draws), size(draws), size(draws));
    let chunk = draws.one_of(&[1, 7, 256, 512, 1024, usize::MAX]).min(rows);
    let cap = draws.one_of(&[None, Some(30.0)]);
    let loss = LinearCrossEntropy { vocab, chunk, cap };
    let matrix = |rows, columns| Type::new(dtype, [rows, columns]);
    let mut inputs =
        vec![matrix(rows, columns), matrix(vocab, columns), Type::new(DType::I32, [rows])];
    let (weight, accumulate) = (draws.one_of(&[true, false]), false);
    let kind = draws.up_to(4);
    if kind <= 2 {
        let gradient = || LinearCrossEntropyGrad { loss: loss.clone(), weight, accumulate };
        let op = if kind == 1 { loss.clone().into() } else { gradient().into() };
        return (op, inputs);
    }
    let columns = size(draws);
    inputs.extend([matrix(rows, columns), matrix(vocab, columns)]);
    let loss = LinearDistillation {
        student: loss,
        taught: vocab,
        teacher_cap: cap,
        temperature: 2.0,
        share: 0.5,
    };
    let gradient = || LinearDistillationGrad { loss: loss.clone(), weight, accumulate };
    let op = if kind == 3 { loss.clone().into() } else { gradient().into() };
    (op, inputs)
}

#[test]
fn scratch_covers_every_piece_of_a_loss() {
    let mut draws = Draws::new(2);
    for _ in 0..4000 {
        let (op, types) = loss(&mut draws);
        let types: Vec<&Type> = types.iter().collect();
        let threads = draws.up_to(17);
        for level in Level::ALL {
            let asked = scratch_bytes(&op, &types, &[], level, threads);
            let need = needs_of_pieces(&op, &types, level, threads).into_iter().max();
            assert!(need <= Some(asked), "{need:?} of {asked}: {op:?}, {types:?}, {level:?}");
        }
    }
}

/// The plan asked for the scratch of a whole chunk, and the last one, of fewer rows, needed more: such runs stopped in their first
/// step.
#[test]
fn a_last_piece_that_needs_more_has_its_scratch() {
    for (columns, vocab, chunk) in [(384, 256, 576), (256, 6080, 1024)] {
        let (rows, threads) = (1536, 1);
        let loss = LinearCrossEntropy { vocab, chunk, cap: None };
        let op = LinearCrossEntropyGrad { loss, weight: true, accumulate: false }.into();
        let matrix = |rows, columns| Type::new(DType::F32, [rows, columns]);
        let types = [matrix(rows, columns), matrix(vocab, columns), Type::new(DType::I32, [rows])];
        let types: Vec<&Type> = types.iter().collect();
        let needs = needs_of_pieces(&op, &types, Level::Avx2, threads);
        assert!(needs.last() > needs.first(), "{needs:?}");
        assert_eq!(Some(&scratch_bytes(&op, &types, &[], Level::Avx2, threads)), needs.last());
    }
}
