//! The kernels compiled for the processor, for tests: the same source text, executed one warp at a time.
#![expect(unsafe_code, reason = "what a C++ compiler made is loaded and called")]

use std::{
    collections::HashMap,
    fs,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use brisk_testkit::process::command;
use libloading::{Library, Symbol};

use super::{
    key::record_words,
    source::{Geometry, SLOTS, SOURCE},
};

/// Replacements of CUDA before the source, and functions that launch the kernels after it.
const BEFORE: &str = include_str!("kernels/host/warp.h");
const AFTER: &str = include_str!("kernels/host/launch.h");

type Private = unsafe extern "C" fn(
    keys: *const u32,
    blinding: *const u32,
    requests: *const u32,
    inputs: *const u32,
    outputs: *mut u32,
    verdicts: *mut u32,
    count: u32,
    fault: u32,
);
type Advance = unsafe extern "C" fn(keys: *const u32, blinding: *mut u32, advances: *const u32, count: u32);
type Multiply =
    unsafe extern "C" fn(modulus: *const u32, inverse: u32, a: *const u32, b: *const u32, product: *mut u32);

/// The kernels of one geometry.
pub(super) struct HostKernels {
    geometry: Geometry,
    /// Locked during each call, because the state of the running warp is global in the library.
    library: Mutex<Library>,
}

/// A half of an operation whose result is to be falsified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    /// Index of the operation in the launch.
    pub(super) operation: u32,
    /// 0: modulo p, 1: modulo q.
    pub(super) half: u32,
}

impl HostKernels {
    /// Unmodified kernels, compiled at the first call for a [`Geometry`].
    pub(super) fn of(geometry: Geometry) -> Arc<Self> {
        Self::cached(geometry, false)
    }

    /// Kernels that can be made to compute wrongly.
    pub(super) fn with_faults(geometry: Geometry) -> Arc<Self> {
        Self::cached(geometry, true)
    }

    fn cached(geometry: Geometry, faults: bool) -> Arc<Self> {
        type Cache = HashMap<(Geometry, bool), Arc<OnceLock<Arc<HostKernels>>>>;
        static CACHE: OnceLock<Mutex<Cache>> = OnceLock::new();
        let mut cache = CACHE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        let kernels = Arc::clone(cache.entry((geometry, faults)).or_default());
        // Released, so that other geometries can be compiled meanwhile.
        drop(cache);
        Arc::clone(
            kernels.get_or_init(|| Arc::new(Self { geometry, library: Mutex::new(build(geometry, faults)) })),
        )
    }

    /// Launches `rsa_private` with one operation per verdict. Inputs and outputs are big-endian.
    pub(super) fn private(
        &self,
        keys: &[u32],
        blinding: &[u32],
        requests: &[u32],
        inputs: &[u8],
        outputs: &mut [u8],
        verdicts: &mut [u32],
    ) {
        self.launch(keys, blinding, requests, inputs, outputs, verdicts, u32::MAX);
    }

    /// Like [`private`](Self::private), with one wrong bit in the result modulo one prime. Requires
    /// [`with_faults`](Self::with_faults).
    #[expect(clippy::too_many_arguments, reason = "those of the kernel, and the fault")]
    pub(super) fn private_with_fault(
        &self,
        keys: &[u32],
        blinding: &[u32],
        requests: &[u32],
        inputs: &[u8],
        outputs: &mut [u8],
        verdicts: &mut [u32],
        fault: Fault,
    ) {
        self.launch(keys, blinding, requests, inputs, outputs, verdicts, 2 * fault.operation + fault.half);
    }

    #[expect(clippy::too_many_arguments, reason = "those of the kernel, and the fault")]
    fn launch(
        &self,
        keys: &[u32],
        blinding: &[u32],
        requests: &[u32],
        inputs: &[u8],
        outputs: &mut [u8],
        verdicts: &mut [u32],
        fault: u32,
    ) {
        let (count, words) = (verdicts.len(), self.geometry.words() as usize);
        assert_eq!(requests.len(), 2 * count);
        assert_eq!((inputs.len(), outputs.len()), (4 * words * count, 4 * words * count));
        self.check_keys(keys, blinding);
        for request in requests.chunks(2) {
            assert!((request[0] as usize) < keys.len() / record_words(self.geometry.width()), "no such key");
            assert!([request[1] & 0xffff, request[1] >> 16].iter().all(|slot| *slot < SLOTS), "no such slot");
        }
        if count == 0 {
            return;
        }
        // The bytes may not be aligned for words.
        let inputs: Vec<u32> =
            inputs.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
        let mut written = vec![0; words * count];
        let library = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the library has this function with this type; the slices have the lengths that the kernel expects,
        // keys and slots were checked, and the lock excludes other threads.
        unsafe {
            let private: Symbol<'_, Private> = library.get(b"host_rsa_private\0").unwrap();
            private(
                keys.as_ptr(),
                blinding.as_ptr(),
                requests.as_ptr(),
                inputs.as_ptr(),
                written.as_mut_ptr(),
                verdicts.as_mut_ptr(),
                count as u32,
                fault,
            );
        }
        for (bytes, word) in outputs.chunks_mut(4).zip(written) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
    }

    /// Launches `advance_blinding`.
    pub(super) fn advance(&self, keys: &[u32], blinding: &mut [u32], advances: &[u32]) {
        self.check_keys(keys, blinding);
        for advance in advances.chunks(2) {
            assert!((advance[0] as usize) < keys.len() / record_words(self.geometry.width()), "no such key");
            assert!(advance[1] < SLOTS, "no such slot");
        }
        let count = advances.len() as u32 / 2;
        if count == 0 {
            return;
        }
        let library = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `launch`.
        unsafe {
            let advance: Symbol<'_, Advance> = library.get(b"host_advance_blinding\0").unwrap();
            advance(keys.as_ptr(), blinding.as_mut_ptr(), advances.as_ptr(), count);
        }
    }

    /// Computes `a·b/R mod modulus`, below R but possibly not reduced, with the threads of half or of a whole
    /// operation, depending on the length of the modulus.
    pub(super) fn multiply(&self, modulus: &[u32], inverse: u32, a: &[u32], b: &[u32]) -> Vec<u32> {
        let (length, words) = (modulus.len(), self.geometry.words() as usize);
        assert!([length, a.len(), b.len()].iter().all(|other| *other == length));
        let name: &[u8] = match length {
            _ if length == words => b"host_multiply_whole\0",
            _ if length == words / 2 => b"host_multiply_half\0",
            _ => panic!("numbers of {length} words"),
        };
        let mut product = vec![0; length];
        let library = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the library has these functions with these types for these lengths; the lock excludes other threads.
        unsafe {
            let multiply: Symbol<'_, Multiply> = library.get(name).unwrap();
            multiply(modulus.as_ptr(), inverse, a.as_ptr(), b.as_ptr(), product.as_mut_ptr());
        }
        product
    }

    fn check_keys(&self, keys: &[u32], blinding: &[u32]) {
        let record = record_words(self.geometry.width());
        let ring = (SLOTS * 2 * self.geometry.words()) as usize;
        assert!(keys.len().is_multiple_of(record), "not whole records");
        assert!(blinding.len() >= keys.len() / record * ring, "not a ring for each key");
    }
}

fn build(geometry: Geometry, faults: bool) -> Library {
    let folder = tempfile::tempdir().unwrap();
    let [source, library] = ["kernels.cpp", "kernels.so"].map(|name| folder.path().join(name));
    fs::write(&source, [BEFORE, SOURCE, AFTER].concat()).unwrap();
    let mut compiler = command("g++");
    compiler.args([
        "-std=c++17",
        "-O2",
        "-fPIC",
        "-shared",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unknown-pragmas",
    ]);
    compiler.args(geometry.options()).args(faults.then_some("-DFAULTS"));
    // The fortified `longjmp` of the C library rejects a jump to another stack.
    compiler.args(["-U_FORTIFY_SOURCE", "-o"]).args([&library, &source]);
    let output = compiler.output().unwrap_or_else(|error| {
        panic!("the kernels are tested on this processor by means of g++, which cannot be run: {error}")
    });
    assert!(output.status.success(), "g++: {}", String::from_utf8_lossy(&output.stderr));
    // SAFETY: the library consists of the kernels and their test environment; loading it runs no code.
    unsafe { Library::new(&library) }.unwrap()
}
