//! NVRTC: compiles CUDA C++ for one GPU architecture.

use std::ffi::{CStr, CString};

use cudarc::nvrtc::{
    result::{self, NvrtcError},
    sys,
};

use crate::{
    error::CudaError,
    source::{Geometry, SOURCE},
};

/// Returns [`CudaError::NoCompiler`] if NVRTC is not installed.
pub(super) fn find() -> Result<(), CudaError> {
    // SAFETY: loading NVRTC only runs its own initialization.
    if unsafe { sys::is_culib_present() } { Ok(()) } else { Err(CudaError::NoCompiler) }
}

/// Compiles the kernels with this [`Geometry`], for GPUs of this compute capability.
pub(super) fn compile(geometry: &Geometry, (major, minor): (i32, i32)) -> Result<Vec<u8>, CudaError> {
    let text = CString::new(SOURCE).expect("the kernels are text");
    let source = Source::new(&text).map_err(|error| refused(error, ""))?;
    let mut options = geometry.options();
    options.push(format!("--gpu-architecture=sm_{major}{minor}"));
    // SAFETY: the program exists.
    if let Err(error) = unsafe { result::compile_program(source.0, &options) } {
        return Err(refused(error, &source.log()));
    }
    source.machine_code().map_err(|error| refused(error, ""))
}

/// A program of NVRTC, destroyed on drop.
struct Source(sys::nvrtcProgram);

impl Source {
    fn new(text: &CStr) -> Result<Self, NvrtcError> {
        result::create_program(text, Some(c"rsa.cu")).map(Self)
    }

    fn machine_code(&self) -> Result<Vec<u8>, NvrtcError> {
        let mut size = 0;
        // SAFETY: the program exists and was compiled; the call writes `size`.
        unsafe { sys::nvrtcGetCUBINSize(self.0, &raw mut size) }.result()?;
        let mut code = vec![0_u8; size];
        // SAFETY: the program exists, and `code` has the length that it reported.
        unsafe { sys::nvrtcGetCUBIN(self.0, code.as_mut_ptr().cast()) }.result()?;
        Ok(code)
    }

    /// Compiler messages.
    fn log(&self) -> String {
        // SAFETY: the program exists.
        let log = unsafe { result::get_program_log(self.0) }.unwrap_or_default();
        let bytes: Vec<u8> =
            log.into_iter().map(|letter| letter as u8).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // SAFETY: the program exists and is destroyed only here. An error has no consequence.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

/// Error with the code of NVRTC and the first line of its messages.
fn refused(error: NvrtcError, log: &str) -> CudaError {
    let first = log.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    CudaError::Compilation(format!("{:?} {first}", error.0).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::{env, fs, mem, path::PathBuf};

    use brisk_keys::device::Width;
    use libloading::Library;

    use super::*;

    /// Loads NVRTC from the folder in `BRISK_NVRTC`, if set, so that the loader finds it by name afterwards.
    fn load_from_folder() {
        let Some(folder) = env::var_os("BRISK_NVRTC").map(PathBuf::from) else { return };
        let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        let mut libraries: Vec<_> = entries
            .filter(|path| {
                path.to_str().is_some_and(|path| path.contains("/libnvrtc") && !path.contains(".alt."))
            })
            .collect();
        // The built-ins library first, because NVRTC loads it by name.
        libraries.sort();
        for library in libraries {
            // SAFETY: as in `find`.
            mem::forget(unsafe { Library::new(library) }.unwrap());
        }
    }

    #[test]
    fn nvrtc_compiles_the_kernels_and_keeps_all_numbers_in_registers() {
        load_from_folder();
        if find().is_err() {
            eprintln!(
                "skipped: NVRTC is not where the loader looks, and BRISK_NVRTC names no folder with it"
            );
            return;
        }
        let text = CString::new(SOURCE).unwrap();
        for width in Width::ALL {
            let geometry = Geometry::new(width, None, None).unwrap();
            let source = Source::new(&text).unwrap();
            let more = ["--gpu-architecture=sm_90", "--ptxas-options=-v"].map(String::from);
            let options: Vec<_> = geometry.options().into_iter().chain(more).collect();
            // SAFETY: the program exists.
            let compiled = unsafe { result::compile_program(source.0, &options) };
            let log = source.log();
            assert!(compiled.is_ok(), "{log}");
            let spills: Vec<_> = log.lines().filter(|line| line.contains("spill")).collect();
            assert_eq!(spills.len(), 2, "one line for each kernel: {log}");
            assert!(spills.iter().all(|line| line.contains(" 0 bytes stack frame, 0 bytes spill")), "{log}");
            assert!(source.machine_code().unwrap().len() > 10_000);
        }
    }
}
