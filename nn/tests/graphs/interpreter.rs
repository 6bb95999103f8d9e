//! Runs programs on [`Op::reference`](tightrope_core::Op), one buffer a storage.

use std::cell::Cell;

use tightrope_core::ops::Array;
use tightrope_core::{Graph, Role, Rule, Tensor};

/// A finished graph with the bytes of its tensors.
pub struct Interpreter<'a> {
    graph: &'a Graph,
    bytes: Vec<Vec<Cell<u8>>>,
}

impl<'a> Interpreter<'a> {
    /// All tensors begin as 0.
    pub fn new(graph: &'a Graph) -> Self {
        graph.check_in_place().unwrap();
        let bytes = graph.tensors.iter().map(|info| match info.replaces {
            Some(_) => vec![],
            None => vec![Cell::new(0); info.ty.bytes()],
        });
        Self { graph, bytes: bytes.collect() }
    }

    fn array(&self, tensor: Tensor) -> Array<'_> {
        let storage = self.graph.storage(tensor);
        Array::new(self.graph.ty(tensor), &self.bytes[storage.index()])
    }

    /// Sets the elements of `tensor`, rounded to its dtype.
    pub fn write<T: Into<f64> + Copy>(&self, tensor: Tensor, values: &[T]) {
        let array = self.array(tensor);
        assert_eq!(array.len(), values.len(), "{}", self.graph.info(tensor).name);
        values.iter().enumerate().for_each(|(index, &value)| array.set(index, value.into()));
    }

    /// The elements of `tensor`.
    pub fn read(&self, tensor: Tensor) -> Vec<f64> {
        let array = self.array(tensor);
        (0..array.len()).map(|index| array.get(index)).collect()
    }

    /// The only element of `tensor`.
    pub fn scalar(&self, tensor: Tensor) -> f64 {
        let values = self.read(tensor);
        assert_eq!(values.len(), 1);
        values[0]
    }

    /// Runs a program. Fresh outputs begin as NaN, so that an element nobody writes shows.
    pub fn run(&self, program: Role) {
        let index = self.graph.program(program).unwrap();
        for node in &self.graph.programs[index].nodes {
            for &output in &node.outputs {
                if self.graph.info(output).replaces.is_none() {
                    self.bytes[output.index()].iter().for_each(|byte| byte.set(0xFF));
                }
            }
            let arrays = |tensors: &[Tensor]| -> Vec<Array<'_>> {
                tensors.iter().map(|&tensor| self.array(tensor)).collect()
            };
            node.op.reference(&arrays(&node.inputs), &arrays(&node.outputs));
        }
    }
}
