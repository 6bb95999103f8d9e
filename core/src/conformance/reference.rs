//! An interpreter that runs graphs through [`Rule::reference`]: one storage a tensor, in-place outputs in
//! the storage they take over, nothing planned. What a backend computes is held against this.

use std::cell::Cell;

use crate::ops::{Array, Case};
use crate::{Class, Graph, Node, Result, Role, Rule, Tensor};

use super::values;

/// A graph and the bytes of its tensors, all zero at first.
pub struct Interpreter<'g> {
    graph: &'g Graph,
    storages: Vec<Vec<Cell<u8>>>,
}

impl<'g> Interpreter<'g> {
    /// Storage for every tensor of `graph`.
    ///
    /// # Panics
    /// Where an op in place would overwrite what is still read.
    pub fn new(graph: &'g Graph) -> Self {
        graph.check_in_place().expect("a graph whose ops in place may be");
        let storages = graph.tensors.iter().map(|info| {
            let bytes = if info.replaces.is_some() { 0 } else { info.ty.bytes() };
            vec![Cell::new(0); bytes]
        });
        Self { storages: storages.collect(), graph }
    }

    fn storage(&self, tensor: Tensor) -> &[Cell<u8>] {
        &self.storages[self.graph.storage(tensor).index()]
    }

    fn array(&self, tensor: Tensor) -> Array<'_> {
        Array::new(self.graph.ty(tensor), self.storage(tensor))
    }

    /// Overwrites a tensor.
    ///
    /// # Panics
    /// Where `bytes` are not as many as the tensor's.
    pub fn write(&self, tensor: Tensor, bytes: &[u8]) {
        let storage = self.storage(tensor);
        assert_eq!(storage.len(), bytes.len(), "{}", self.graph.info(tensor).name);
        storage.iter().zip(bytes).for_each(|(cell, &byte)| cell.set(byte));
    }

    /// Bytes of a tensor.
    pub fn read(&self, tensor: Tensor) -> Vec<u8> {
        self.storage(tensor).iter().map(Cell::get).collect()
    }

    /// Elements of a tensor, in row-major order.
    pub fn values(&self, tensor: Tensor) -> Vec<f64> {
        self.array(tensor).values()
    }

    /// The only element of a tensor.
    ///
    /// # Panics
    /// Where it has others.
    pub fn scalar(&self, tensor: Tensor) -> f64 {
        let values = self.values(tensor);
        assert_eq!(values.len(), 1, "{}", self.graph.info(tensor).name);
        values[0]
    }

    /// Sets all elements of a tensor, rounded to its dtype.
    ///
    /// # Panics
    /// Where `values` are not as many.
    pub fn assign<T: Into<f64> + Copy>(&self, tensor: Tensor, values: &[T]) {
        let array = self.array(tensor);
        assert_eq!(array.len(), values.len(), "{}", self.graph.info(tensor).name);
        values.iter().enumerate().for_each(|(index, &value)| array.set(index, value.into()));
    }

    /// Sets one element of a tensor.
    pub fn set(&self, tensor: Tensor, index: usize, value: f64) {
        self.array(tensor).set(index, value);
    }

    /// Runs one node. Outputs of their own begin as NaN, so that an element that nobody writes shows.
    pub fn step(&self, node: &Node) {
        for &output in &node.outputs {
            if self.graph.info(output).replaces.is_none() {
                self.storage(output).iter().for_each(|byte| byte.set(0xFF));
            }
        }
        let arrays = |tensors: &[Tensor]| -> Vec<Array<'_>> {
            tensors.iter().map(|&tensor| self.array(tensor)).collect()
        };
        node.op.reference(&arrays(&node.inputs), &arrays(&node.outputs));
    }

    /// Runs all nodes of the program with this index in [`Graph::programs`], in order.
    ///
    /// # Panics
    /// Where the graph has no such program.
    pub fn run(&self, program: usize) {
        self.graph.programs[program].nodes.iter().for_each(|node| self.step(node));
    }

    /// Runs the program of this role.
    ///
    /// # Panics
    /// Where the graph has none.
    pub fn run_role(&self, role: Role) {
        self.run(self.graph.program(role).expect("a program of this role"));
    }
}

/// A case as a graph with one program of one node.
pub struct Lone {
    /// The graph.
    pub graph: Graph,
    /// The case's inputs: persistent tensors `input.0`, `input.1`, …
    pub inputs: Vec<Tensor>,
    /// The op's outputs, all of them results of the program.
    pub outputs: Vec<Tensor>,
}

impl Lone {
    /// The graph of a case.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] where the op doesn't take the case's inputs.
    pub fn new(case: &Case) -> Result<Self> {
        let mut graph = Graph::new();
        let inputs: Vec<Tensor> = case
            .inputs
            .iter()
            .enumerate()
            .map(|(index, sample)| {
                graph.persistent(&format!("input.{index}"), sample.ty.clone(), Class::Input)
            })
            .collect();
        graph.begin(Role::Main);
        let outputs = graph.push(case.op.clone(), &inputs, "output")?;
        outputs.iter().for_each(|&output| graph.result(output));
        Ok(Self { graph, inputs, outputs })
    }
}

/// Bytes of every output of a case. An output in place starts from its input's bytes.
///
/// # Errors
/// As [`Lone::new`].
pub fn outputs(case: &Case) -> Result<Vec<Vec<u8>>> {
    let lone = Lone::new(case)?;
    let interpreter = Interpreter::new(&lone.graph);
    for (&input, bytes) in lone.inputs.iter().zip(values::inputs(case)) {
        interpreter.write(input, &bytes);
    }
    interpreter.run(0);
    Ok(lone.outputs.iter().map(|&output| interpreter.read(output)).collect())
}

#[cfg(test)]
mod tests {
    use crate::expr::input;
    use crate::ops::{Fill, Map, MatMul, Sample};
    use crate::{DType, Type};

    use super::*;

    fn constants(shape: &[usize], value: i64) -> Sample {
        Sample { ty: Type::new(DType::F32, shape), fill: Fill::Whole(value, value + 1) }
    }

    #[test]
    fn an_accumulating_matmul_starts_from_its_input() {
        let op = MatMul { accumulate: true, ..MatMul::new(DType::F32) };
        let inputs = vec![constants(&[2, 3], 2), constants(&[3, 1], 5), constants(&[2, 1], 7)];
        let bytes = outputs(&Case::new(op, inputs)).unwrap();
        assert_eq!(values::decode(DType::F32, &bytes[0]), [37.0, 37.0]);
    }

    #[test]
    fn a_program_runs_in_order_over_shared_storage() {
        let mut graph = Graph::new();
        let x = graph.persistent("x", Type::new(DType::F32, [2]), Class::Weight);
        graph.begin(Role::Main);
        let doubling = Map { in_place: vec![(0, 0)], ..Map::new(input(0) + input(0), DType::F32) };
        let doubled = graph.one(doubling, &[x], "x").unwrap();
        let sum = graph.one(Map::add(DType::F32), &[doubled, doubled], "sum").unwrap();
        let interpreter = Interpreter::new(&graph);
        interpreter.write(x, &values::encode(DType::F32, [1.0, -3.0]));
        interpreter.run(0);
        interpreter.run(0);
        assert_eq!(interpreter.values(x), [4.0, -12.0]);
        assert_eq!(interpreter.values(sum), [8.0, -24.0]);
    }
}
