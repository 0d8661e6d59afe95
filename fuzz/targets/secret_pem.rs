#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brisk_secrets::fuzz::secret_pem(bytes));
