"""HTTP libraries of Python: libraries.py LIBRARY URL CA VERSION. Prints a line of JSON. They do not resume."""
import asyncio
import json
import ssl
import sys

library, url, ca, version = sys.argv[1:5]
context = ssl.create_default_context(cafile=ca)
context.minimum_version = context.maximum_version = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[version]


def with_urllib3():
    import urllib3
    with urllib3.PoolManager(ssl_context=context) as pool:
        return pool.request("GET", url).status


def with_httpx():
    import httpx
    with httpx.Client(http2=True, verify=context) as client:
        return client.get(url).status_code


def with_aiohttp():
    import aiohttp

    async def ask():
        async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
            await answer.read()
            return answer.status
    return asyncio.run(ask())


print(json.dumps({"status": {"urllib3": with_urllib3, "httpx": with_httpx, "aiohttp": with_aiohttp}[library]()}))
