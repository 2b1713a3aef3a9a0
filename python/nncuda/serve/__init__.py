"""The server: a stored model over HTTP, in the words of OpenAI's API.

`api` has the fields, errors and limits, as data that the servers of all languages share. `service` runs the engine in a
thread of its own, to which the texts of all connections come; `generation` is a request on its way; `app` puts the
routes together, and `server` runs them on a socket until a signal ends them.

It needs the packages of the extra `serve`.
"""
