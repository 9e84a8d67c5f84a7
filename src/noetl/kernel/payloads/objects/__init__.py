"""The durable payload store: objects in a local directory, S3, Google Cloud Storage or Azure.

`connect` turns settings into a store. `store` keeps the promise of the port over a `bucket` of keys and bytes, and
`local` over plain files. `sealed_object` compresses and encrypts on the way in, and checks every digest on the way
out; `format` is the layout of a stored object.

Payloads are never overwritten. A tenant's key never leaves the process.
"""
