"""placeholder"""
DICTIONARY = b"additional_kwargs response_metadata"
