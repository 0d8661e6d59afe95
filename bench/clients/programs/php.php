<?php
// PHP's streams: php.php URL CA VERSION. Prints a line of JSON. They do not resume.
[, $url, $ca, $version] = $argv;
$method = ['1.2' => STREAM_CRYPTO_METHOD_TLSv1_2_CLIENT, '1.3' => STREAM_CRYPTO_METHOD_TLSv1_3_CLIENT][$version];
$context = stream_context_create(['ssl' => ['cafile' => $ca, 'crypto_method' => $method]]);
$stream = fopen($url, 'r', false, $context);
stream_get_contents($stream);
$status = (int) explode(' ', stream_get_meta_data($stream)['wrapper_data'][0])[1];
echo json_encode(['status' => $status]), "\n";
