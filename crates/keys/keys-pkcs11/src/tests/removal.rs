//! Tokens that disappear and return, missing keys, and modules that do not return.

use std::{
    env, fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use brisk_keys::KeyError;
use brisk_testkit::process::{TIMEOUT, command, run, wait_until};

use super::*;

/// Longer than any operation while the token is reachable, and shorter than any deadline.
const SOON: Duration = Duration::from_secs(20);

/// Signs continuously on some threads while `body` runs. No operation may take longer than [`SOON`].
fn under_load(engine: &TokenEngine, key: KeyId, body: impl FnOnce(&Counts)) {
    let (counts, stop) = (Counts::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let started = Instant::now();
                    let result = perform(engine, sign_p256(key));
                    assert!(started.elapsed() < SOON, "{result:?} after {:?}", started.elapsed());
                    if result.is_ok() { &counts.done } else { &counts.failed }
                        .fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        body(&counts);
        stop.store(true, Ordering::Relaxed);
    });
}

#[derive(Default)]
struct Counts {
    done: AtomicUsize,
    failed: AtomicUsize,
}

/// Waits until a counter has increased.
fn grows(what: &str, count: &AtomicUsize) {
    let before = count.load(Ordering::Relaxed);
    wait_until(what, || (count.load(Ordering::Relaxed) > before + 20).then_some(()));
}

#[test]
fn a_token_that_goes_and_comes_back_under_load_is_used_again() {
    with_tokens("removal::a_token_that_goes_and_comes_back_under_load_is_used_again", |tokens| {
        let (engine, key) = site(tokens);
        under_load(&engine, key, |counts| {
            for round in 1..=3 {
                grows("signatures", &counts.done);
                tokens.take_away();
                wait_until("a token that is missed", || (!engine.status().is_up).then_some(()));
                grows("operations that fail", &counts.failed);
                tokens.put_back();
                wait_until("a token that is back", || engine.status().is_up.then_some(()));
                grows("signatures again", &counts.done);
                assert_eq!(engine.status().reconnections, round);
            }
        });
        assert_eq!(engine.status().faults, 0);
        // A key in use is not tried again, even while that is impossible.
        tokens.take_away();
        let refused = wait_until("a refusal", || perform(&engine, sign_p256(key)).err());
        assert_eq!(refused, KeyError::Failed("the token cannot be reached"));
        let certified = CertificateKey {
            public_key: engine_key(tokens, &engine, key),
            algorithm: KeyAlgorithm::EcdsaP256,
            subject: String::new(),
        };
        let again = attach(tokens, "pkcs11:token=web;object=site", &certified).expect("a key that is known");
        assert!(Arc::ptr_eq(&again, &engine));
        let other =
            attach(tokens, "pkcs11:token=web;object=other", &certified).expect_err("a key that is not");
        assert!(other.to_string().contains("the token \"web\" cannot be reached now"), "{other}");
    });
}

/// The public key, read before the token disappears.
fn engine_key(tokens: &Tokens, engine: &TokenEngine, key: KeyId) -> Vec<u8> {
    tokens.put_back();
    let public = tokens.public_key("web", "site");
    assert_eq!(KeyId::of_spki(&public), key);
    tokens.take_away();
    wait_until("a token that is missed", || {
        drop(perform(engine, sign_p256(key)));
        (!engine.status().is_up).then_some(())
    });
    public
}

#[test]
fn one_key_that_goes_takes_no_other_with_it() {
    with_tokens("removal::one_key_that_goes_takes_no_other_with_it", |tokens| {
        let (engine, key) = site(tokens);
        tokens.generate("web", "other", "02", TokenKind::P256, &[]);
        let other = certified(tokens, "other", TokenKind::P256);
        attach(tokens, "pkcs11:token=web;object=other", &other).expect("another key");
        let other = KeyId::of_spki(&other.public_key);
        tokens.delete("web", "other");
        let gone = KeyError::Failed("the token does not have the key any more");
        wait_until("a key that is gone", || {
            (perform(&engine, sign_p256(other)) == Err(gone.clone())).then_some(())
        });
        for _ in 0..20 {
            assert!(perform(&engine, sign_p256(key)).is_ok());
            assert!(perform(&engine, sign_p256(other)).is_err());
        }
        assert_eq!((engine.status().is_up, engine.status().reconnections), (true, 0));
    });
}

#[test]
fn a_key_that_is_replaced_by_another_of_its_name_is_noticed() {
    with_tokens("removal::a_key_that_is_replaced_by_another_of_its_name_is_noticed", |tokens| {
        let (engine, key) = site(tokens);
        tokens.delete("web", "site");
        tokens.generate("web", "site", "02", TokenKind::P256, &[]);
        let fault = KeyError::Failed("the token's signature is not one of the certificate's key");
        wait_until("a fault", || (perform(&engine, sign_p256(key)) == Err(fault.clone())).then_some(()));
        assert!(engine.status().faults > 0);
    });
}

#[test]
fn an_engine_that_is_dropped_ends_and_its_token_can_be_opened_again() {
    with_tokens("removal::an_engine_that_is_dropped_ends_and_its_token_can_be_opened_again", |tokens| {
        let (engine, key) = site(tokens);
        assert_eq!(IN_USE.statuses().len(), 1);
        let left = engine.submit(sign_p256(key));
        drop(engine);
        assert_eq!(IN_USE.statuses().len(), 0);
        drop(left);
        let certified = certified(tokens, "site", TokenKind::P256);
        let engine = attach(tokens, "pkcs11:token=web;object=site", &certified).expect("a key");
        assert!(perform(&engine, sign_p256(key)).is_ok());
    });
}

/// A variant of SoftHSM in which `C_Sign` does not return while a file exists.
fn hanging_module(tokens: &Tokens) -> PathBuf {
    let (source, library) = (tokens.folder().join("hang.cpp"), tokens.folder().join("hang.so"));
    fs::write(&source, include_str!("hang.cpp")).unwrap();
    let mut compiler = command("g++");
    compiler.args(["-shared", "-fPIC", "-std=c++17", "-o"]).arg(&library).arg(&source);
    compiler.arg(format!("-DMODULE=\"{}\"", module().display())).arg("-ldl");
    run(&mut compiler, b"", TIMEOUT).success();
    library
}

#[test]
fn a_module_that_does_not_return_holds_no_handshake_up() {
    let name = "removal::a_module_that_does_not_return_holds_no_handshake_up";
    let file = env::temp_dir().join(format!("brisk-test-hang-{}", std::process::id()));
    if Tokens::of_this_process().is_none() && env::var_os("BRISK_TEST_HANG").is_none() {
        // The module reads the name of the file from the environment, which is process-wide.
        let program = env::current_exe().unwrap();
        let mut command = std::process::Command::new(program);
        command.args([&format!("tests::{name}"), "--exact", "--nocapture"]).env("BRISK_TEST_HANG", &file);
        return drop(run(&mut command, b"", Duration::from_mins(2)).success());
    }
    with_tokens(name, |tokens| {
        let file = PathBuf::from(env::var_os("BRISK_TEST_HANG").expect("a file"));
        tokens.add("web");
        tokens.generate("web", "site", "01", TokenKind::P256, &[]);
        let certified = certified(tokens, "site", TokenKind::P256);
        let uri: KeyUri = "pkcs11:object=site".parse().unwrap();
        let pin = PinSource::file(tokens.pin_file());
        let hanging = hanging_module(tokens);
        let settings = TokenSettings::default();
        let engine = IN_USE.attach(settings, &uri, &hanging, Some(&pin), &certified).expect("a key");
        let key = KeyId::of_spki(&certified.public_key);
        fs::write(&file, "").unwrap();
        let deadline = Instant::now() + Duration::from_millis(300);
        let scheme = SignatureScheme::ECDSA_SECP256R1_SHA256;
        // More operations than sessions: some wait, the others never return.
        let pending: Vec<_> = (0..20).map(|_| engine.submit(sign_until(key, scheme, deadline))).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let results: Vec<_> = pending.into_iter().map(|pending| runtime.block_on(pending)).collect();
        assert!(deadline.elapsed() < SOON, "{:?}", deadline.elapsed());
        let silent = KeyError::Failed("the token did not answer in time");
        assert_eq!(results.iter().filter(|result| **result == Err(silent.clone())).count(), 8, "{results:?}");
        assert_eq!(results.iter().filter(|result| **result == Err(KeyError::DeadlinePassed)).count(), 12);
        // No session is left: further operations fail before their deadline.
        assert!(!engine.status().is_up);
        assert_eq!(engine.submit(sign_p256(key)).try_take(), Some(Err(silent)));
        fs::remove_file(&file).unwrap();
        wait_until("a module that has returned", || engine.status().is_up.then_some(()));
        assert!(perform(&engine, sign_p256(key)).is_ok());
        // A failure without a reason renews only its own session.
        let failing = file.with_extension("fail");
        let before = engine.status().reconnections;
        fs::write(&failing, "").unwrap();
        for _ in 0..5 {
            let failed = KeyError::Failed("the token does not perform it");
            assert_eq!(perform(&engine, sign_p256(key)), Err(failed));
        }
        fs::remove_file(&failing).unwrap();
        assert_eq!((engine.status().is_up, engine.status().reconnections), (true, before));
        assert!(perform(&engine, sign_p256(key)).is_ok());
        // Operations within the module fail in time even if the engine has been dropped.
        fs::write(&file, "").unwrap();
        let deadline = Instant::now() + Duration::from_millis(300);
        let pending = engine.submit(sign_until(key, scheme, deadline));
        wait_until("an operation that is under way", || (engine.status().waiting == 0).then_some(()));
        thread::sleep(Duration::from_millis(50));
        drop(engine);
        let result = runtime.block_on(async { tokio::time::timeout(SOON, pending).await });
        assert!(matches!(result, Ok(Err(KeyError::Failed(_)))), "{result:?}");
        fs::remove_file(&file).unwrap();
    });
}
