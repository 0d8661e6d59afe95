//! Tests of the calls to NVIDIA's driver and NVRTC with replacement libraries, which need no GPU: the processor runs
//! the kernels, and any call that the real driver would reject ends the test.
#![expect(unsafe_code, reason = "libraries are loaded, and functions of them called")]

use std::{num::NonZeroUsize, path::Path, sync::Arc, time::Duration};

use aws_lc_rs::rand;
use brisk_keys::{BatchEngine, BatchSettings, KeyId, KeyOperation, Keystore, LocalEngine, PrivateKeyEngine};
use brisk_keys_cuda::{CudaEngine, CudaSettings};
use brisk_testkit::process::command;
use bytes::Bytes;
use libloading::{Library, Symbol};
use rcgen::RsaKeySize;

/// Compiles and loads a library of this name, so that the loader returns it for the name from then on.
fn stand_in(name: &str, folder: &Path) -> Library {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let [source, host] = [format!("tests/driver/{name}.cpp"), "src/kernels/host/".into()];
    let library = folder.join(format!("{name}.so"));
    let mut compiler = command("g++");
    compiler.args(["-std=c++17", "-O1", "-fPIC", "-shared", "-Wall", "-Werror", "-o"]).arg(&library);
    compiler.arg(format!("-DHOST=\"{}\"", here.join(host).display()));
    compiler.arg(format!("-DFOLDER=\"{}\"", folder.display()));
    compiler.arg(format!("-Wl,-soname,{name}.so")).arg(here.join(source)).args(["-ldl", "-pthread"]);
    let output = compiler.output().unwrap_or_else(|error| panic!("g++ cannot be run: {error}"));
    assert!(output.status.success(), "g++: {}", String::from_utf8_lossy(&output.stderr));
    // SAFETY: loading it runs only the constructors of its empty maps.
    unsafe { Library::new(&library) }.expect("a library")
}

fn keystore(keys: &[rcgen::KeyPair]) -> (Arc<Keystore>, Vec<KeyId>) {
    let mut keystore = Keystore::new();
    let ids =
        keys.iter().map(|key| keystore.add_pem(key.serialize_pem().as_bytes()).expect("a key")).collect();
    (Arc::new(keystore), ids)
}

fn engine(keystore: &Arc<Keystore>) -> CudaEngine {
    let two = NonZeroUsize::new(2).expect("not zero");
    let settings = CudaSettings { streams: two, wave: NonZeroUsize::new(6), ..CudaSettings::default() };
    let processor = BatchEngine::new(Arc::clone(keystore), &BatchSettings::default()).expect("threads");
    CudaEngine::new(processor, &settings).expect("a GPU")
}

/// Performs two operations with each key and compares them with AWS-LC.
async fn compare(engine: &CudaEngine, keystore: &Arc<Keystore>, ids: &[KeyId]) {
    let far = std::time::Instant::now() + Duration::from_hours(1);
    let operations = ids.iter().chain(ids).map(|id| {
        let mut number = vec![0; 256];
        rand::fill(&mut number[1..]).expect("randomness");
        KeyOperation::decrypt(*id, Bytes::from(number), far)
    });
    let operations: Vec<_> = operations.collect();
    let pending: Vec<_> = operations.iter().map(|operation| engine.submit(operation.clone())).collect();
    for (operation, pending) in operations.into_iter().zip(pending) {
        let expected = LocalEngine::new(Arc::clone(keystore)).submit(operation).await;
        assert_eq!(pending.await, expected);
    }
}

#[tokio::test]
async fn keys_and_operations_go_to_the_gpu_and_nothing_is_left_there() {
    let folder = tempfile::tempdir().unwrap();
    let (driver, _compiler) = (stand_in("libcuda", folder.path()), stand_in("libnvrtc", folder.path()));
    // SAFETY: the library has these functions with these types.
    let (left, not_wiped, break_down): (
        Symbol<'_, extern "C" fn() -> u64>,
        Symbol<'_, extern "C" fn() -> u64>,
        Symbol<'_, extern "C" fn()>,
    ) = unsafe {
        (
            driver.get(b"blocks_left").unwrap(),
            driver.get(b"blocks_not_wiped").unwrap(),
            driver.get(b"break_down").unwrap(),
        )
    };
    let keys = [(); 3]
        .map(|()| rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap());
    let ((one, first), (all, ids)) = (keystore(&keys[..1]), keystore(&keys));

    let first_engine = engine(&one);
    assert_eq!(first_engine.to_string(), "Stand-in, 2 multiprocessors");
    compare(&first_engine, &one, &first).await;
    // The memory for keys grows, and the existing key stays.
    let second_engine = first_engine.with_keystore(Arc::clone(&all));
    compare(&second_engine, &all, &ids).await;
    let statistics = Arc::clone(second_engine.statistics());
    assert!(left() > 0);
    drop((first_engine, second_engine));
    assert_eq!((statistics.operations(), statistics.faults(), statistics.taken_over()), (8, 0, 0));
    assert_eq!((left(), not_wiped()), (0, 0));

    let engine = engine(&all);
    break_down();
    compare(&engine, &all, &ids).await;
    let loss = engine.statistics().loss().unwrap().to_string();
    assert_eq!(loss, "the GPU cannot start a kernel: unspecified launch failure");
    assert_eq!(engine.statistics().taken_over(), 6);
    drop(engine);
    assert_eq!((left(), not_wiped()), (0, 0));
}
