#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brisk_certs::fuzz::issuer_bundle(bytes));
