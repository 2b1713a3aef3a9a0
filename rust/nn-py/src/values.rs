//! Between Python's values and those of the Rust crates: dictionaries of options, arrays of ids, tensors by name.

use nn_core::format::{Table, Value};
use nn_core::model::ParameterArena;
use numpy::{
    PyArray1, PyArray2, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};

/// Options from a dictionary.
pub(crate) fn table(options: Option<&Bound<'_, PyDict>>) -> PyResult<Table> {
    let Some(options) = options else { return Ok(Table::new()) };
    options.iter().map(|(name, value)| Ok((name.extract()?, option(&name, &value)?))).collect()
}

fn option(name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    // A bool is an int in Python.
    if value.is_none() {
        Ok(Value::None)
    } else if value.is_instance_of::<PyBool>() {
        Ok(Value::Bool(value.extract()?))
    } else if value.is_exact_instance_of::<PyInt>()
        && let Ok(number) = value.extract()
    {
        Ok(Value::Integer(number))
    } else if value.is_exact_instance_of::<PyFloat>() {
        Ok(Value::Float(value.extract()?))
    } else if value.is_instance_of::<PyString>() {
        Ok(Value::Text(value.extract()?))
    } else {
        let repr = value.repr()?;
        Err(PyValueError::new_err(format!("{name} is {repr}; it must be a number, true or false, text, or None")))
    }
}

/// A dictionary of options.
pub(crate) fn dictionary<'py>(py: Python<'py>, options: &Table) -> PyResult<Bound<'py, PyDict>> {
    let made = PyDict::new(py);
    for (name, value) in options.iter() {
        match value {
            Value::None => made.set_item(name, py.None())?,
            Value::Bool(value) => made.set_item(name, value)?,
            Value::Integer(value) => made.set_item(name, value)?,
            Value::Float(value) => made.set_item(name, value)?,
            Value::Text(value) => made.set_item(name, value)?,
            other => made.set_item(name, other.shown())?,
        }
    }
    Ok(made)
}

/// Ids of a batch, copied from Python.
pub(crate) struct Ids {
    pub(crate) rows: usize,
    pub(crate) length: usize,
    pub(crate) values: Vec<i32>,
}

impl Ids {
    /// Copies an int32 array `[batch, length]` of any strides, row by row. TypeError for another dtype, ValueError for
    /// another number of dimensions.
    pub(crate) fn new(name: &str, array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Ok(untyped) = array.cast::<PyUntypedArray>() else {
            let kind = array.get_type().name()?;
            return Err(PyTypeError::new_err(format!("{name} is of type {kind}; it must be an int32 array of NumPy")));
        };
        let dtype = untyped.dtype();
        if !dtype.is_equiv_to(&numpy::dtype::<i32>(array.py())) {
            return Err(PyTypeError::new_err(format!("{name} has dtype {dtype}; it must be int32")));
        }
        let Ok(array) = array.cast::<PyArray2<i32>>() else {
            let shape = untyped.shape();
            return Err(PyValueError::new_err(format!("{name} has shape {shape:?}; it must be [batch, length]")));
        };
        let array = array.try_readonly()?;
        let array = array.as_array();
        let (rows, length) = array.dim();
        Ok(Self { rows, length, values: array.iter().copied().collect() })
    }

    /// Ids and targets, of one shape.
    pub(crate) fn pair(input_ids: &Bound<'_, PyAny>, targets: &Bound<'_, PyAny>) -> PyResult<(Self, Self)> {
        let (ids, wanted) = (Self::new("input_ids", input_ids)?, Self::new("targets", targets)?);
        if (ids.rows, ids.length) == (wanted.rows, wanted.length) {
            return Ok((ids, wanted));
        }
        Err(PyValueError::new_err(format!(
            "input_ids [{}, {}] and targets [{}, {}] must have the same shape, [batch, length]",
            ids.rows, ids.length, wanted.rows, wanted.length
        )))
    }
}

/// An arena on its way to Python: all its elements, and name, shape and place of each tensor.
pub(crate) struct Tensors {
    values: Vec<f32>,
    places: Vec<(String, Vec<usize>, usize)>,
}

impl Tensors {
    pub(crate) fn of(arena: &ParameterArena) -> nn_core::Result<Self> {
        let specs = arena.layout().specs().iter();
        let places = specs.map(|spec| (spec.name.clone(), spec.shape.clone(), spec.offset)).collect();
        Ok(Self { values: arena.to_vec()?, places })
    }

    /// Arrays by name, in the order of the arena.
    pub(crate) fn arrays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let arrays = PyDict::new(py);
        for (name, shape, offset) in &self.places {
            let size: usize = shape.iter().product();
            arrays.set_item(name, array(py, &self.values[*offset..offset + size], shape)?)?;
        }
        Ok(arrays)
    }
}

/// An array of a shape, from its elements.
pub(crate) fn array<'py>(py: Python<'py>, values: &[f32], shape: &[usize]) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
    PyArray1::from_slice(py, values).reshape(shape.to_vec())
}
