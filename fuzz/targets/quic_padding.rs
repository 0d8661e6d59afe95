#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brisk_tls::fuzz::quic_padding(bytes));
