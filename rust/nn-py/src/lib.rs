//! The Python module `nncuda_rs`: the Rust model and trainer, with arrays of NumPy, for Python programs and for tests
//! that compare both languages in one process.
#![forbid(unsafe_code)]

mod errors;
mod model;
mod shared;
mod tokenizer;
mod trainer;
mod values;

/// nncuda's MoE transformer and trainer, in Rust: the same numbers as `nncuda`'s, to the bit.
#[pyo3::pymodule]
mod nncuda_rs {
    use std::path::PathBuf;

    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::model::{Generation, Model};
    #[pymodule_export]
    use crate::tokenizer::Tokenizer;
    #[pymodule_export]
    use crate::trainer::{StepResult, Trainer};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Where pip puts the library, whichever Python runs this.
        let packages = module.py().import("sysconfig")?.call_method1("get_path", ("platlib",))?;
        nn_ffi::suggest(packages.extract::<PathBuf>()?.join("nncuda").join("libnncuda.so"));
        crate::errors::add_to(module)
    }
}
