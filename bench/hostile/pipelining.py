"""An HTTP/1.1 upstream that handles pipelined requests in the way that the first argument names, as a separate process.

  correct     answers all in order
  slow        each sixteenth response takes 200 ms
  incorrect   sends bytes that are no response behind the first response of a pipeline
  closing     closes after each fifth response, whatever is behind it
  dying       resets the connection within each twentieth response
"""
import asyncio
import socket
import struct
import sys

KINDS = ["correct", "slow", "incorrect", "closing", "dying"]
SLOW = 0.2
BODY = b"x" * 1000
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


async def answer(kind, reader, writer):
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received, count = b"", 0
    try:
        while True:
            piece = await reader.read(65536)
            if not piece:
                break
            received += piece
            heads = received.split(b"\r\n\r\n")
            received = heads.pop()
            for index in range(len(heads)):
                count += 1
                if kind == "slow" and count % 16 == 0:
                    await asyncio.sleep(SLOW)
                if kind == "dying" and count % 20 == 0:
                    writer.write(RESPONSE[:500])
                    await writer.drain()
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                if kind == "incorrect" and index:
                    writer.write(b"no response\r\n\r\n")
                    return
                writer.write(RESPONSE)
                if kind == "closing" and count % 5 == 0:
                    return
    except ConnectionError:
        pass
    finally:
        writer.close()


async def serve(kind):
    server = await asyncio.start_server(lambda reader, writer: answer(kind, reader, writer), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
