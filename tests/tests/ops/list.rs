//! What the list of ops promises: names, cases, references, type rules that say what is wrong.

use std::collections::BTreeSet;

use conformance::reference::{self, Lone};
use conformance::{cases, parallel, values};
use tightrope_core::ops::{Case, Sample};
use tightrope_core::{DType, Error, Op, Rule, Type};

fn of_family(family: &str) -> Vec<Case> {
    Op::all_cases().into_iter().filter(|case| case.op.family() == family).collect()
}

#[test]
fn every_family_is_tried_at_1_and_at_a_prime() {
    let cases = cases::all();
    for family in Op::FAMILIES {
        assert!(!of_family(family).is_empty(), "{family} has no case");
        let extents: BTreeSet<usize> = cases
            .iter()
            .filter(|case| case.op.family() == *family)
            .flat_map(|case| case.inputs.iter().flat_map(|sample| sample.ty.shape.clone()))
            .collect();
        assert!(extents.contains(&1), "{family} isn't tried with an extent of 1");
        let prime = |&n: &usize| n > 2 && (2..).take_while(|d| d * d <= n).all(|d| n % d != 0);
        assert!(extents.iter().any(prime), "{family} isn't tried with a prime extent");
    }
}

#[test]
fn names_are_unique_and_readable() {
    let mut names = BTreeSet::new();
    for family in Op::FAMILIES {
        let name = of_family(family)[0].op.name();
        assert!(of_family(family).iter().all(|case| case.op.name() == name), "{family}");
        assert!(names.insert(name), "{name} is there twice");
        let readable =
            name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        assert!(readable, "{name} isn't snake_case");
        let joined: String = name.split('_').collect();
        assert_eq!(joined, family.to_lowercase(), "{name} is another name than {family}");
    }
    assert_eq!(names.len(), Op::FAMILIES.len());
}

#[test]
fn every_reference_gives_finite_numbers_of_the_inferred_types() {
    let cases = cases::all();
    let problems = parallel::map(&cases, |case| {
        let lone = Lone::new(case).unwrap_or_else(|error| panic!("{error}"));
        let outputs = reference::outputs(case).expect("the graph was just built");
        let mut problem = None;
        for (&tensor, bytes) in lone.outputs.iter().zip(&outputs) {
            let ty = lone.graph.ty(tensor);
            let values = values::decode(ty.dtype, bytes);
            if values.len() != ty.elements() || !values.iter().all(|value| value.is_finite()) {
                problem = Some(format!("{:?} gives {ty} {values:?}", case.op));
            }
        }
        problem
    });
    let problems: Vec<String> = problems.into_iter().flatten().collect();
    assert_eq!(problems, [] as [String; 0]);
}

/// What the graph says to a case with other inputs; `None` where it takes them.
fn refusal(case: &Case, inputs: Vec<Sample>) -> Option<String> {
    let types: Vec<Type> = inputs.iter().map(|sample| sample.ty.clone()).collect();
    let error = Lone::new(&Case::new(case.op.clone(), inputs)).err()?;
    assert!(matches!(error, Error::Shape { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains(case.op.name()), "{message}: doesn't name the op");
    assert!(message.contains("`output"), "{message}: doesn't name the output");
    for ty in types {
        assert!(message.contains(&ty.to_string()), "{message}: doesn't show input {ty}");
    }
    Some(message)
}

/// A shape that nothing fits.
fn misfit(dtype: DType) -> Sample {
    cases::floats(dtype, &[13, 17, 19, 23], -1.0, 1.0)
}

/// Inputs that some case of `family` refuses when `spoil` changes them, and the number of inputs there are.
fn spoilt(family: &str, spoil: fn(&Sample) -> Sample) -> (BTreeSet<usize>, BTreeSet<usize>) {
    let (mut refused, mut there) = (BTreeSet::new(), BTreeSet::new());
    for case in of_family(family) {
        for index in 0..case.inputs.len() {
            there.insert(index);
            let mut wrong = case.inputs.clone();
            wrong[index] = spoil(&wrong[index]);
            if refusal(&case, wrong).is_some() {
                refused.insert(index);
            }
        }
    }
    (refused, there)
}

#[test]
fn wrong_numbers_of_inputs_are_refused_with_the_op_and_all_types() {
    for case in cases::all() {
        let mut more = case.inputs.clone();
        more.push(misfit(DType::F32));
        assert!(refusal(&case, more).is_some(), "{:?} takes one input more", case.op);
        if let Some((_, fewer)) = case.inputs.split_last() {
            let of_any_number = matches!(case.op, Op::Concat(_) | Op::SquareSum(_));
            let least = usize::from(matches!(case.op, Op::SquareSum(_)));
            let any_number = of_any_number && fewer.len() > least;
            let refusal = refusal(&case, fewer.to_vec());
            assert!(refusal.is_some() || any_number, "{:?} takes one input less", case.op);
        }
    }
}

#[test]
fn wrong_shapes_are_refused_with_the_op_and_all_types() {
    // Inputs that may have any shape beside the others: the tensor among a map's single numbers, ids, and sums, as long as tensors have
    // slots in them.
    let free = [("Map", 7), ("Embedding", 1), ("SquareSum", 0)];
    let mut wrong = vec![];
    for family in Op::FAMILIES {
        let (refused, there) = spoilt(family, |sample| misfit(sample.ty.dtype));
        let alone = there.len() == 1;
        let taken = there.difference(&refused);
        wrong.extend(taken.map(|&input| (*family, input)).filter(|_| !alone));
    }
    assert_eq!(wrong, free, "inputs that take any shape");
}

#[test]
fn wrong_dtypes_are_refused_with_the_op_and_all_types() {
    // These move or convert whatever they are given.
    let any = ["Map", "Permute", "Reshape", "Expand", "Slice", "SliceGrad", "Concat"];
    let mut wrong = vec![];
    for family in Op::FAMILIES.iter().filter(|family| !any.contains(family)) {
        let (refused, there) = spoilt(family, |sample| {
            let dtype = if sample.ty.dtype.is_float() { DType::U8 } else { DType::F32 };
            Sample { ty: sample.ty.with_dtype(dtype), ..sample.clone() }
        });
        wrong.extend(there.difference(&refused).map(|&input| (*family, input)));
    }
    assert_eq!(wrong, [], "inputs that take any dtype");
}

/// A case of an op whose every dtype was widened is still taken: gradient checks depend on it.
#[test]
fn every_op_is_defined_in_f64() {
    for case in cases::all() {
        let wide = cases::retyped(&case, &cases::widened);
        let lone = Lone::new(&wide).unwrap_or_else(|error| panic!("{error}"));
        for &output in &lone.outputs {
            let dtype = lone.graph.dtype(output);
            assert!(!dtype.is_float() || dtype == DType::F64, "{:?} gives {dtype}", wide.op);
        }
        assert_eq!(cases::in_f64(&case.op), wide.op);
    }
}
