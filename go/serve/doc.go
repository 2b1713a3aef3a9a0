// Package serve answers requests over HTTP in the words of OpenAI's API, for one stored model, with the bodies that the
// server of the Python package writes.
//
// api.json has the fields, errors and limits, as data that the servers of all languages share. A [Server] puts package
// infer's Service behind net/http: texts of all clients are decoded together, and each gets the bytes that it would get
// alone.
package serve
