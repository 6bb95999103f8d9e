//! Figures of the inputs alone, worked out by the host.

use std::cell::Cell;
use std::collections::HashMap;

use crate::graph::{Graph, Node, Tensor};
use crate::ops::{Array, Rule};

/// The bytes of an input, and its tensor.
pub type Written<'a> = (Tensor, &'a [u8]);

/// The elements of each of these tensors, which depend on these inputs alone, by the definition of each op. `None` where an input is
/// missing or of another size.
pub fn known_values(
    graph: &Graph,
    inputs: &[Written<'_>],
    wanted: &[Tensor],
) -> Option<Vec<Vec<f64>>> {
    let cells = |bytes: &[u8]| bytes.iter().map(|&byte| Cell::new(byte)).collect();
    let mut held: HashMap<Tensor, Vec<Cell<u8>>> = HashMap::new();
    let nodes = graph.programs.first().map_or(&[][..], |program| &program.nodes);
    let mut needed = vec![false; graph.tensors.len()];
    wanted.iter().for_each(|tensor| needed[tensor.index()] = true);
    let mut run: Vec<&Node> = vec![];
    for node in nodes.iter().rev() {
        if node.outputs.iter().any(|output| needed[output.index()]) {
            node.inputs.iter().for_each(|input| needed[input.index()] = true);
            run.push(node);
        }
    }
    for &(tensor, bytes) in inputs.iter().filter(|(tensor, _)| needed[tensor.index()]) {
        held.insert(tensor, cells(bytes));
    }
    for node in run.into_iter().rev() {
        for &output in &node.outputs {
            held.insert(output, vec![Cell::new(0); graph.ty(output).bytes()]);
        }
        let arrays = |tensors: &[Tensor]| -> Option<Vec<Array<'_>>> {
            let array = |tensor: &Tensor| {
                let (ty, bytes) = (graph.ty(*tensor), held.get(tensor)?);
                (ty.bytes() == bytes.len()).then(|| Array::new(ty, bytes))
            };
            tensors.iter().map(array).collect()
        };
        node.op.reference(&arrays(&node.inputs)?, &arrays(&node.outputs)?);
    }
    let values = |tensor: &Tensor| {
        let (ty, bytes) = (graph.ty(*tensor), held.get(tensor)?);
        (ty.bytes() == bytes.len()).then(|| Array::new(ty, bytes).values())
    };
    wanted.iter().map(values).collect()
}
