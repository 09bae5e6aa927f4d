from hypothesis import settings

# A shared machine can be slow at any moment; what a property costs is no property of the code.
settings.register_profile("corelm", deadline=None)
settings.load_profile("corelm")
