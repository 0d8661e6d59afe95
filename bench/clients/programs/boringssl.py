"""curl with BoringSSL, the library of Chrome: boringssl.py URL CA VERSION KIND. Prints a line of JSON for each visit."""
import json
import sys

from curl_cffi import Curl, CurlInfo, CurlOpt

url, ca, version, kind = sys.argv[1:5]
number = {"1.2": 6, "1.3": 7}[version]  # CURL_SSLVERSION_TLSv1_2, _3
curl = Curl()
for _ in range(1 if kind == "full" else 2):
    body = []
    curl.impersonate("chrome")
    curl.setopt(CurlOpt.URL, url)
    curl.setopt(CurlOpt.CAINFO, ca)
    curl.setopt(CurlOpt.SSLVERSION, number | number << 16)
    curl.setopt(CurlOpt.FORBID_REUSE, 1)
    curl.setopt(CurlOpt.WRITEFUNCTION, lambda part: body.append(part) or len(part))
    curl.perform()
    print(json.dumps({"status": curl.getinfo(CurlInfo.RESPONSE_CODE), "library": curl.version().decode()}))
